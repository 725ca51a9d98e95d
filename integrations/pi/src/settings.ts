// Settings: the key "backstitch" in pi's own settings.json, of the user and of a trusted project.

/** What happens to the files when the conversation moves by itself: put back, asked about, or left. */
export type Policy = "always" | "ask" | "never";

export type Settings = {
  /** Record at all, and offer /rewind. */
  enabled: boolean;
  /** The engine: a name on the path, or a path. Only from the user's own file. */
  binary: string;
  /** What opens the menu beside the command. */
  gesture: "double-escape" | "none";
  /** Longest time between the two presses, in milliseconds. */
  gestureWindow: number;
  restoreOnFork: Policy;
  restoreOnTree: Policy;
  restoreOnResume: Policy;
};

export const DEFAULTS: Settings = {
  enabled: true,
  binary: "backstitch",
  gesture: "double-escape",
  gestureWindow: 500,
  restoreOnFork: "ask",
  restoreOnTree: "ask",
  restoreOnResume: "ask",
};

const policy = (v: unknown): v is Policy => v === "always" || v === "ask" || v === "never";
const VALID: { [K in keyof Settings]: (value: unknown) => boolean } = {
  enabled: (v) => typeof v === "boolean",
  binary: (v) => typeof v === "string" && v !== "",
  gesture: (v) => v === "double-escape" || v === "none",
  gestureWindow: (v) => typeof v === "number" && Number.isInteger(v) && v >= 50 && v <= 5000,
  restoreOnFork: policy,
  restoreOnTree: policy,
  restoreOnResume: policy,
};
const isKey = (key: string): key is keyof Settings => Object.hasOwn(VALID, key);

/** A settings file: its text, or `undefined` where there is none. */
export type Source = { name: string; text: string | undefined; ofProject: boolean };

/**
 * Environment over project over user over defaults, field by field. A broken file or value is a warning and the next
 * value in that order, never silence.
 */
export function read(sources: Source[], env: NodeJS.ProcessEnv): { settings: Settings; warnings: string[] } {
  const settings: Settings = { ...DEFAULTS };
  const warnings: string[] = [];
  for (const { name, text, ofProject } of sources) {
    if (text === undefined) continue;
    let own: unknown;
    try {
      own = (JSON.parse(text) as { backstitch?: unknown } | null)?.backstitch;
    } catch (error) {
      warnings.push(`${name}: ${error instanceof Error ? error.message : error}`);
      continue;
    }
    if (own === undefined) continue;
    if (own === null || typeof own !== "object" || Array.isArray(own)) {
      warnings.push(`${name}: "backstitch" is not an object`);
      continue;
    }
    for (const [key, value] of Object.entries(own)) {
      if (!isKey(key)) warnings.push(`${name}: there is no setting backstitch.${key}`);
      else if (!VALID[key](value)) warnings.push(`${name}: backstitch.${key} cannot be ${JSON.stringify(value)}`);
      else if (ofProject && key === "binary") warnings.push(`${name}: backstitch.binary is read from your own settings only`);
      else Object.assign(settings, { [key]: value });
    }
  }
  if (env["BACKSTITCH_BINARY"]) settings.binary = env["BACKSTITCH_BINARY"];
  if (/^(1|true|yes|on)$/i.test(env["BACKSTITCH_DISABLE"] ?? "")) settings.enabled = false;
  return { settings, warnings };
}
