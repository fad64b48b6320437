// Starts the Kinesis server given as the first argument, bound to its owner and to this machine.
"use strict";

const { Server } = require("node:net");

// The server would listen on every interface. It accepts any credentials, so other machines must not reach it.
const listen = Server.prototype.listen;
Server.prototype.listen = function (port, ...rest) {
  return listen.call(this, port, "127.0.0.1", ...rest);
};

// The owner holds standard input open. When the owner ends, for any reason, this process ends too. The server replaces
// process.exit by a function that waits for open connections.
const exit = process.exit.bind(process);
process.stdin.on("end", () => exit(0));
process.stdin.resume();

require(process.argv[2]);
