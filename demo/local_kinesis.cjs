// Starts the Kinesis server given as the first argument, bound to its owner and to this machine.
"use strict";

const { Server } = require("node:net");

// The server asks for every interface; it takes any credentials, so nobody else may reach it.
const listen = Server.prototype.listen;
Server.prototype.listen = function (port, ...rest) {
  return listen.call(this, port, "127.0.0.1", ...rest);
};

// The owner holds our standard input open: when it ends, however it ends, so do we. The server replaces
// process.exit by one that waits for open connections.
const exit = process.exit.bind(process);
process.stdin.on("end", () => exit(0));
process.stdin.resume();

require(process.argv[2]);
