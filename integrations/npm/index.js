// Where npm has put the program for this system: in one of the packages that are chosen by system and processor.
"use strict";
const { accessSync, constants } = require("node:fs");
const { dirname, join } = require("node:path");

/** The name of the package that holds the program for this system. */
const NAME = `backstitch-${process.platform}-${process.arch}`;

/** The program's path, or `undefined` where there is none for this system. */
function binary() {
  try {
    const program = join(dirname(require.resolve(`${NAME}/package.json`)), "bin", "backstitch");
    accessSync(program, constants.X_OK);
    return program;
  } catch {
    return undefined;
  }
}

module.exports = { NAME, binary };
