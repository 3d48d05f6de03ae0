// The example plugin (see ../widget) in JavaScript: either half, over gRPC. It loads the protocol from the
// folder types/plugin; nothing is generated. See docs/plugins.md.
//   npm install && node widget.js --half=device|scheduler [--socket-folder=DIR] [--proto-folder=DIR]
'use strict';
const fs = require('fs');
const path = require('path');
const { parseArgs } = require('util');
const grpc = require('@grpc/grpc-js');
const { loadSync } = require('@grpc/proto-loader');

const resource = 'example.com/widget';
const maxWidgets = 256; // keeps the node's annotation small
const key = (board, widget) => `resource/group/board/${board}/widget/${widget}/cards`;

const refusal = (message) => Object.assign(new Error(message), { code: grpc.status.FAILED_PRECONDITION });
// unary makes a method of a function from request to response. What that throws is the call's error.
const unary = (f) => (call, done) => {
  try { done(null, f(call.request)); } catch (err) { done(err); }
};

// The node's half. The variable EXAMPLE_WIDGETS says what hardware there is, "<boards>x<widgets of each>".
const [, boards, perBoard] = /^(\d{1,3})x(\d{1,3})$/.exec(process.env.EXAMPLE_WIDGETS || '2x2') || [];
const count = boards * perBoard; // NaN if it makes no sense
const device = {
  Start: unary(() => {
    if (count <= maxWidgets) return {};
    throw refusal(`EXAMPLE_WIDGETS: want <boards>x<widgets of each>, such as 2x2, at most ${maxWidgets} widgets`);
  }),
  Watch(stream) { // a plugin whose devices come and go writes all of them again
    const group = {};
    for (let i = 0; i < count; i++) group[key(Math.floor(i / perBoard), i)] = 1;
    const total = { [resource]: count };
    stream.write({ capacity: group, allocatable: group, kube_capacity: total, kube_allocatable: total });
  },
  Allocate: unary(({ pod, container }) => {
    const found = pod?.init_containers[container] || pod?.running_containers[container];
    if (!found) throw refusal(`the pod has no container "${container}"`);
    const widgets = [];
    for (const [request, from] of Object.entries(found.allocate_from)) {
      if (!request.startsWith('resource/group/board/')) continue; // another plugin's
      const [, board, widget] = /^resource\/group\/board\/(\d+)\/widget\/(\d+)\/cards$/.exec(from) || [];
      if (!(widget < count)) throw refusal(`"${from}" was assigned for "${request}": no such widget`);
      widgets.push(`${board}-${widget}`);
    }
    return widgets.length ? { env: { WIDGETS: widgets.sort().join(',') } } : {};
  }),
};

// The scheduler's half. It translates what a pod requests; the group scheduler finds the board.
function translate(pod) {
  const changes = { init_containers: {}, running_containers: {} };
  for (const kind of Object.keys(changes)) {
    for (const [name, c] of Object.entries(pod?.[kind] || {})) {
      const n = c.requests[resource] || c.kube_requests[resource] || 0;
      if (n < 0 || n > maxWidgets) throw refusal(`container "${name}" asks for ${n} of ${resource}`);
      const wanted = { ...c.dev_requests };
      for (let i = 0; i < n; i++) wanted[key(0, i)] = 1; // one label for the board: all from one
      if (n > 0) changes[kind][name] = { ...c, dev_requests: wanted };
    }
  }
  return changes;
}

function verdict(pod) {
  try {
    return { fits: true, changes: translate(pod) };
  } catch {
    const text = `Insufficient ${resource}`;
    return { reasons: [{ text, resource, requested: maxWidgets + 1, capacity: maxWidgets }] };
  }
}

const sessions = new Map(); // session to the names of its nodes, which is all that this plugin needs of them
const scheduler = {
  Start: unary(() => ({ resources: [resource], uses_group_scheduler: true })),
  Nodes(stream) {
    const names = new Set();
    let session;
    stream.on('data', (request) => {
      sessions.set(session = request.session, names);
      request.nodes.forEach((node) => names.add(node.name));
      request.removed.forEach((name) => names.delete(name));
      stream.write({ revision: request.revision });
    });
    stream.on('end', () => stream.end()).on('close', () => sessions.delete(session));
  },
  Fit: unary(({ pod, session, names, nodes }) => {
    const unknown = names.find((name) => !sessions.get(session)?.has(name));
    if (unknown !== undefined) throw refusal(`session "${session}" has no node "${unknown}"`);
    return { verdicts: [...names, ...nodes].map(() => verdict(pod)) };
  }),
  Allocate: unary(({ pod }) => ({ changes: translate(pod) })),
};

const type = 'string';
const { values } = parseArgs({ options: { half: { type }, 'socket-folder': { type }, 'proto-folder': { type } } });
const { half, 'proto-folder': protos = path.join(__dirname, '../../../types/plugin') } = values;
const [service, methods] = { device: ['Device', device], scheduler: ['DeviceScheduler', scheduler] }[half] || [];
if (!service) throw new Error('want --half=device or --half=scheduler');
const { kubeslot: { plugin } } = grpc.loadPackageDefinition(loadSync(
  ['registration/registration.proto', 'v1alpha1/plugin.proto'],
  { includeDirs: [protos], keepCase: true, longs: Number, defaults: true }));
const server = new grpc.Server();
server.addService(plugin.v1alpha1[service].service, methods);
server.addService(plugin.registration.Registration.service, {
  GetInfo: unary(() => ({ name: 'widget', half: half.toUpperCase(), supported_versions: ['v1alpha1'] })),
});
const socket = path.join(values['socket-folder'] || `/run/kubeslot/plugins/${half}s`, 'widget.sock');
const made = `${socket}.new`; // under another name until it is served: hosts connect to *.sock at once
fs.rmSync(made, { force: true });
server.bindAsync(`unix:${made}`, grpc.ServerCredentials.createInsecure(), (err) => {
  if (err) throw err;
  fs.chmodSync(made, 0o600);
  const { ino } = fs.statSync(made);
  fs.renameSync(made, socket);
  process.once('SIGTERM', () => { // unless a newer process has replaced the socket
    if (fs.statSync(socket, { throwIfNoEntry: false })?.ino === ino) fs.rmSync(socket);
    server.forceShutdown();
  });
});
