// Where the program is: on the path, else in the npm package that comes with this one.
import { accessSync, constants } from "node:fs";
import { createRequire } from "node:module";
import { delimiter, join } from "node:path";

/** The program to start for this name. A path, and a name that somebody chose, is taken as it is. */
export function program(name: string, path = process.env["PATH"] ?? "", packaged = fromPackage): string {
  if (name !== "backstitch") return name;
  const there = path.split(delimiter).some((dir) => dir !== "" && executable(join(dir, name)));
  return there ? name : (packaged() ?? name);
}

function executable(file: string): boolean {
  try {
    accessSync(file, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

/** The program of the npm package `backstitch`; `undefined` where that is not installed, or has none for this system. */
function fromPackage(): string | undefined {
  try {
    const found = createRequire(import.meta.url)("backstitch") as { binary?: () => string | undefined };
    return found.binary?.();
  } catch {
    return undefined;
  }
}
