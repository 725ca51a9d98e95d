// A model on loopback that says what a test wrote down: Anthropic's messages, streamed. It never leaves this machine.
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { Signal } from "./wait.ts";

/** One thing in a reply. `until` holds the reply back; `status` answers with an error instead. */
export type Part =
  | { text: string }
  | { tool: string; input: object }
  | { status: number }
  | { until: Promise<unknown> };
export type Reply = readonly Part[];

export const text = (words: string): Part => ({ text: words });
export const write = (path: string, content: string): Part => ({ tool: "write", input: { path, content } });
export const edit = (path: string, oldText: string, newText: string): Part => ({ tool: "edit", input: { path, edits: [{ oldText, newText }] } });
export const bash = (command: string): Part => ({ tool: "bash", input: { command } });

type Block = { type: string; text?: string; content?: unknown };
type Message = { role: string; content: string | Block[] };
/** A request as the model saw it: what each side said, tool results as `<result>`. */
export type Request = { turns: { role: string; text: string }[]; tools: boolean };

const words = (content: Message["content"]): string =>
  typeof content === "string" ? content : content.map((b) => (b.type === "text" ? (b.text ?? "") : b.type === "tool_result" ? "<result>" : "")).join("");

export class Model extends Signal {
  readonly requests: Request[] = [];
  #server: Server;
  #rules: { prompt: string; replies: Reply[]; failures: number }[] = [];
  #calls = 0;

  private constructor(server: Server) {
    super();
    this.#server = server;
    server.on("request", (request, response) => {
      this.#answer(request, response).catch((error: unknown) => response.destroy(error as Error));
    });
  }

  static async start(): Promise<Model> {
    const server = createServer();
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    return new Model(server);
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** Replies to a prompt that contains these words: one for each request of its turn, the last one again and again. */
  on(prompt: string, ...replies: Reply[]): void {
    this.#rules.unshift({ prompt, replies, failures: 0 });
  }

  /** Closes it, and whatever is still open. */
  stop(): void {
    this.#server.closeAllConnections();
    this.#server.close();
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    if (request.method !== "POST" || !request.url?.includes("/messages")) {
      response.writeHead(404).end("{}");
      return;
    }
    const body = JSON.parse(Buffer.concat(chunks).toString("utf8")) as { messages: Message[]; tools?: unknown[] };
    const turns = body.messages.filter((m) => m.role !== "system").map((m) => ({ role: m.role, text: words(m.content) }));
    const tools = (body.tools ?? []).length > 0;
    this.requests.push({ turns, tools });
    this.changed();
    let reply: Reply = [text("a summary")];
    if (tools) {
      reply = [text("ok")];
      const at = turns.findLastIndex((t) => t.role === "user" && this.#rules.some((r) => t.text.includes(r.prompt)));
      const rule = this.#rules.find((r) => turns[at]?.text.includes(r.prompt));
      if (rule) {
        const step = turns.slice(at + 1).filter((t) => t.role === "assistant").length + rule.failures;
        reply = rule.replies[Math.min(step, rule.replies.length - 1)] ?? reply;
        if (reply.some((part) => "status" in part)) rule.failures += 1;
      }
    }
    for (const part of reply) if ("until" in part) await part.until;
    const failure = reply.find((part) => "status" in part);
    if (failure) {
      response.writeHead(failure.status, { "content-type": "application/json" });
      response.end(JSON.stringify({ type: "error", error: { type: "overloaded_error", message: "written down" } }));
      return;
    }
    this.#stream(response, reply);
  }

  #stream(response: ServerResponse, reply: Reply): void {
    response.writeHead(200, { "content-type": "text/event-stream" });
    const send = (type: string, data: object) => response.write(`event: ${type}\ndata: ${JSON.stringify({ type, ...data })}\n\n`);
    const usage = { input_tokens: 10, output_tokens: 10, cache_creation_input_tokens: 0, cache_read_input_tokens: 0 };
    const id = `msg_${this.requests.length}`;
    send("message_start", { message: { id, type: "message", role: "assistant", model: "fake", content: [], stop_reason: null, stop_sequence: null, usage } });
    let index = 0;
    let stop = "end_turn";
    for (const part of reply) {
      if ("text" in part) {
        send("content_block_start", { index, content_block: { type: "text", text: "" } });
        send("content_block_delta", { index, delta: { type: "text_delta", text: part.text } });
      } else if ("tool" in part) {
        stop = "tool_use";
        send("content_block_start", { index, content_block: { type: "tool_use", id: `call_${++this.#calls}`, name: part.tool, input: {} } });
        send("content_block_delta", { index, delta: { type: "input_json_delta", partial_json: JSON.stringify(part.input) } });
      } else continue;
      send("content_block_stop", { index });
      index += 1;
    }
    send("message_delta", { delta: { stop_reason: stop, stop_sequence: null }, usage });
    send("message_stop", {});
    response.end();
  }
}
