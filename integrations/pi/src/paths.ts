// Which paths a tool call names, read as pi reads them.
import { homedir } from "node:os";
import { resolve } from "node:path";
import { fileURLToPath } from "node:url";

const SPACES = /[\u00A0\u2000-\u200A\u202F\u205F\u3000]/g;

/** The absolute path that pi's file tools make of an argument. */
export function toolPath(argument: string, cwd: string, home: string = homedir()): string {
  let path = argument.replace(SPACES, " ");
  if (path.startsWith("@")) path = path.slice(1);
  if (/^file:\/\//i.test(path)) {
    try {
      return fileURLToPath(path);
    } catch {
      return resolve(cwd, path);
    }
  }
  if (path === "~") path = home;
  else if (path.startsWith("~/")) path = home + path.slice(1);
  return resolve(cwd, path);
}

/** pi's own tools that change nothing. */
const READERS = new Set(["read", "grep", "find", "ls"]);

/**
 * What a call may change: nothing (`undefined`), the named paths, or, with an empty list, anything. A tool that is not
 * known may change anything, whatever it calls its arguments.
 */
export function scope(tool: string, input: unknown, cwd: string): string[] | undefined {
  if (READERS.has(tool)) return undefined;
  const path = (input as { path?: unknown } | undefined)?.path;
  return (tool === "write" || tool === "edit") && typeof path === "string" ? [toolPath(path, cwd)] : [];
}
