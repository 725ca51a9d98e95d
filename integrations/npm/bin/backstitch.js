#!/usr/bin/env node
// Runs the program in this process's place, as far as Node can: same arguments, inputs and outputs, signals and end.
"use strict";
const { spawn } = require("node:child_process");
const { NAME, binary } = require("../index.js");

const program = binary();
if (program === undefined) {
  console.error(`error: the npm package ${NAME} is not installed, or holds no program for this system.`);
  console.error("  hint: install without --omit=optional; where there is no such package, `cargo install backstitch-cli`.");
  process.exit(1);
}
const child = spawn(program, process.argv.slice(2), { stdio: "inherit" });
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT"]) {
  // From a terminal the child gets SIGINT itself; this process only has to outlive it.
  process.on(signal, () => signal !== "SIGINT" && child.kill(signal));
}
child.on("error", (error) => {
  console.error(`error: ${program}: ${error.message}`);
  process.exit(1);
});
child.on("exit", (code, signal) => {
  if (signal === null) process.exit(code ?? 1);
  process.removeAllListeners(signal);
  process.kill(process.pid, signal);
});
