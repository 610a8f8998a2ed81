// Loaded into Azurite's process before Azurite (node --require). The process that started it holds the
// other end of standard input, so its end, however it comes, closes that pipe. Azurite then stops in its
// usual way and saves; what hangs is ended.
"use strict";

const fs = require("node:fs");
const path = require("node:path");

const GRACE_MS = 15000;
const LOOK_MS = 1000;
const parent = process.ppid;
const scratch = process.cwd(); // made for this process; nobody else is left to remove it
let stopping = false;

function stop() {
  if (stopping) return;
  stopping = true;
  if (path.basename(scratch).startsWith("postdate-azurite-") && process.platform !== "win32") {
    process.on("exit", () => fs.rmSync(scratch, { recursive: true, force: true }));
  }
  setTimeout(() => process.exit(1), GRACE_MS).unref();
  // Azurite listens for SIGTERM once it serves; before that there is nothing to save.
  if (process.listenerCount("SIGTERM") === 0) process.exit(0);
  process.emit("SIGTERM", "SIGTERM");
}

process.stdin.on("end", stop).on("close", stop).on("error", stop);
process.stdin.resume();
process.stdin.unref();

// Another child of the same parent may have been forked with our pipe open, and would keep it open.
setInterval(() => { if (process.ppid !== parent) stop(); }, LOOK_MS).unref();
