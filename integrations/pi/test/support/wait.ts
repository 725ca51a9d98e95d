// Waiting for what happens, with a time limit, and without looking again and again.

/** How long anything may take. Only a failing test ever waits this long. */
export const LIMIT = 90_000;

/** Something that changes; whoever waits looks again after each change. */
export class Signal {
  #waiting = new Set<() => void>();

  changed(): void {
    for (const look of [...this.#waiting]) look();
  }

  /** The first value that `find` gives, now or after a change. */
  until<T>(what: string, find: () => T | undefined | false, context: () => string = () => ""): Promise<T> {
    return new Promise((resolve, reject) => {
      const look = () => {
        const found = find();
        if (found === undefined || found === false) return;
        clearTimeout(timer);
        this.#waiting.delete(look);
        resolve(found);
      };
      const timer = setTimeout(() => {
        this.#waiting.delete(look);
        reject(new Error(`not within ${LIMIT} ms: ${what}\n${context()}`));
      }, LIMIT);
      this.#waiting.add(look);
      look();
    });
  }
}
