// A discovery handler that is generated from discovery.proto, as somebody would write
// one in JavaScript: node handler.js <discovery.proto> <agent's socket> <endpoint>
// It reports the devices that it is told on stdin: each line is a JSON DiscoverResponse.
'use strict';
const grpc = require('@grpc/grpc-js');
const loader = require('@grpc/proto-loader');
const readline = require('readline');

const [proto, agent, endpoint] = process.argv.slice(2);
const v0 = grpc.loadPackageDefinition(loader.loadSync(proto, { keepCase: true, enums: String, objects: true })).v0;
const say = (event, data) => console.log(JSON.stringify({ event, ...data }));

let last = null; // no devices are known yet
const streams = new Set();

function discover(call) {
  const properties = {};
  for (const [name, value] of Object.entries(call.request.discovery_properties)) {
    properties[name] = value.vec === undefined ? null : Buffer.from(value.vec).toString('base64');
  }
  say('discover', { details: call.request.discovery_details, properties });
  if (call.request.discovery_details === 'refuse') {
    call.emit('error', { code: grpc.status.INVALID_ARGUMENT, details: 'no such details' });
    return;
  }
  streams.add(call);
  if (last) call.write(last);
  call.on('cancelled', () => {
    streams.delete(call);
    say('cancelled');
    register(); // as Akri's handlers do
  });
}

function register() {
  const network = endpoint.startsWith('http://');
  const client = new v0.Registration('unix:' + agent, grpc.credentials.createInsecure());
  const request = { name: 'js', endpoint, endpoint_type: network ? 'NETWORK' : 'UDS', shared: true };
  client.RegisterDiscoveryHandler(request, (error) => {
    client.close();
    if (error) {
      say('refused', { error: error.message });
      setTimeout(register, 1000);
      return;
    }
    say('registered');
  });
}

const server = new grpc.Server();
server.addService(v0.DiscoveryHandler.service, { Discover: discover });
const address = endpoint.startsWith('http://') ? endpoint.slice('http://'.length) : 'unix:' + endpoint;
server.bindAsync(address, grpc.ServerCredentials.createInsecure(), (error) => {
  if (error) throw error;
  register();
});
readline.createInterface({ input: process.stdin }).on('line', (line) => {
  last = JSON.parse(line);
  for (const call of streams) call.write(last);
}).on('close', () => process.exit(0));
