"use strict";
// A discovery server of node-opcua, until its standard input ends:
// node lds.js <port> <folder>
const { OPCUADiscoveryServer } = require("node-opcua-server-discovery");
const { OPCUACertificateManager } = require("node-opcua");
const [port, folder] = process.argv.slice(2);

(async () => {
  const serverCertificateManager = new OPCUACertificateManager({ rootFolder: folder, automaticallyAcceptUnknownCertificate: true });
  await serverCertificateManager.initialize();
  const server = new OPCUADiscoveryServer({ port: Number(port), serverCertificateManager });
  await server.start();
  console.log("ready");
  process.stdin.resume().on("end", async () => { await server.shutdown(); process.exit(0); });
})().catch((err) => { console.error(err); process.exit(1); });
