// What most tests begin with: a place, a pi in it, and both gone afterwards.
import assert from "node:assert/strict";
import type { Model } from "./model.ts";
import { type Dialog, Pi } from "./pi.ts";
import { Place, type PiVersion } from "./place.ts";

export type Scene = { place: Place; pi: Pi; start: (...args: string[]) => Pi };

export async function scene(version: PiVersion | undefined, model: Model, settings: object, work: (scene: Scene) => Promise<void>, extension?: (place: Place) => string[]): Promise<void> {
  assert.ok(version);
  const place = new Place(model, settings);
  const all: Pi[] = [];
  const start = (...args: string[]): Pi => {
    const pi = new Pi(version, place, args, extension?.(place));
    all.push(pi);
    return pi;
  };
  try {
    await work({ place, pi: start(), start });
    for (const pi of all) assert.deepEqual(pi.unexpected, [], "dialogs that nobody expected");
    for (const pi of all) await pi.close();
  } finally {
    for (const pi of all) pi.process.kill("SIGKILL");
    place.remove();
  }
}

export const options = (dialog: Dialog | undefined): string[] => dialog?.options ?? [];
export const LIST = "Rewind to before which prompt?";
