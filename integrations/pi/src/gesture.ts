// Double Escape.

/** Press of the Escape key in any encoding of terminals that pi asks for; its release and its repeats are not one. */
export function isEscape(data: string): boolean {
  return data === "\x1b" || /^\x1b\[27(;1(:1)?)?u$/.test(data) || data === "\x1b[27;1;27~";
}

/** Two presses within a window of `window` milliseconds, nothing between them, each while `eligible`. */
export class DoublePress {
  #window: number;
  #at: number | undefined;

  constructor(window: number) {
    this.#window = window;
  }

  /** Feeds one input of the terminal; true for the press that completes the gesture. */
  input(data: string, eligible: boolean, now: number): boolean {
    if (!isEscape(data) || !eligible) {
      // The release of the first press comes between the two and breaks nothing.
      if (!/^\x1b\[27;\d+:3u$/.test(data)) this.#at = undefined;
      return false;
    }
    if (this.#at !== undefined && now - this.#at <= this.#window) {
      this.#at = undefined;
      return true;
    }
    this.#at = now;
    return false;
  }
}
