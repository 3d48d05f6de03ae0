// An agent that is generated from discovery.proto, in Akri's part:
// node agent.js <discovery.proto> <socket> <details>
// It takes registrations, asks each handler once with the details, and prints what it
// hears as JSON, a line each. SIGUSR1 makes it cancel all streams.
'use strict';
const grpc = require('@grpc/grpc-js');
const loader = require('@grpc/proto-loader');

const [proto, socket, details] = process.argv.slice(2);
const v0 = grpc.loadPackageDefinition(loader.loadSync(proto, { keepCase: true, enums: String })).v0;
const say = (event, data) => console.log(JSON.stringify({ event, data }));

const streams = new Set();

function discover(registered) {
  const address = registered.endpoint_type === 'NETWORK'
    ? registered.endpoint.slice('http://'.length) : 'unix:' + registered.endpoint;
  const client = new v0.DiscoveryHandler(address, grpc.credentials.createInsecure());
  const stream = client.Discover({ discovery_details: details, discovery_properties: {} });
  streams.add(stream);
  stream.on('data', (response) => say('devices', response));
  stream.on('error', (error) => say('ended', error.details));
  stream.on('close', () => streams.delete(stream));
}

const server = new grpc.Server();
server.addService(v0.Registration.service, {
  RegisterDiscoveryHandler(call, answer) {
    say('registered', call.request);
    answer(null, {});
    discover(call.request);
  },
});
server.bindAsync('unix:' + socket, grpc.ServerCredentials.createInsecure(), (error) => {
  if (error) throw error;
});
process.on('SIGUSR1', () => {
  for (const stream of streams) stream.cancel();
});
process.stdin.on('end', () => process.exit(0)).resume();
