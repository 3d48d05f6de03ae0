"use strict";
// A server of node-opcua, until its standard input ends:
// node server.js <port> <name> <host name it gives out> <folder> <discovery server's URL>
const { OPCUAServer, OPCUACertificateManager, RegisterServerMethod } = require("node-opcua");
const [port, name, hostname, folder, discoveryServerEndpointUrl] = process.argv.slice(2);

(async () => {
  const serverCertificateManager = new OPCUACertificateManager({ rootFolder: folder, automaticallyAcceptUnknownCertificate: true });
  await serverCertificateManager.initialize();
  const server = new OPCUAServer({
    port: Number(port),
    hostname,
    resourcePath: "/UA/" + name,
    serverCertificateManager,
    serverInfo: { applicationName: { text: name }, applicationUri: "urn:kubeslot:" + name },
    registerServerMethod: RegisterServerMethod.LDS,
    discoveryServerEndpointUrl,
  });
  server.on("serverRegistered", () => console.log("registered"));
  await server.start();
  console.log("ready");
  process.stdin.resume().on("end", async () => { await server.shutdown(100); process.exit(0); });
})().catch((err) => { console.error(err); process.exit(1); });
