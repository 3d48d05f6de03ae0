// What the page knows, and questions about it. Nothing here touches the document.

export class Model {
  constructor() {
    this.ready = false;
    this.clear();
  }

  clear() {
    this.devices = new Map();
    this.reach = {};
    this.configurations = [];
    this.nodes = [];
    this.pods = [];
    this.problems = [];
    this.missing = [];
    this.error = '';
    this.events = [];
    this.points = [];
    this.recorded = 0;
    this.about = this.about || {};
    this.offset = this.offset || 0;
  }

  // now is the server's time in milliseconds.
  now() { return Date.now() + this.offset; }

  // apply takes an update of the server.
  apply(update) {
    if (update.full) this.clear();
    this.ready = true;
    this.offset = update.time - Date.now();
    for (const part of ['configurations', 'reach', 'nodes', 'pods', 'problems', 'missing', 'error', 'recorded']) {
      if (update[part] !== undefined) this[part] = update[part];
    }
    for (const d of update.devices || []) this.devices.set(d.name, prepared(d));
    for (const name of update.gone || []) this.devices.delete(name);
    if (update.devices || update.gone) this.sorted = null;
    for (const e of update.events || []) this.events.push(e);
    for (const p of update.points || []) {
      if (this.points.length && this.points[this.points.length - 1].time === p.time) this.points.pop();
      this.points.push(p);
    }
    const from = update.time - hour;
    if (this.events.length > 2000) this.events = this.events.slice(-1000);
    this.events = this.events.filter((e) => e.time >= from);
    while (this.points.length > 1 && this.points[1].time <= from) this.points.shift();
  }

  // list is all devices by Configuration and name.
  list() {
    if (!this.sorted) {
      this.sorted = [...this.devices.values()].sort((a, b) => order(a.configuration, b.configuration) || order(a.label, b.label) || order(a.name, b.name));
    }
    return this.sorted;
  }

  reachOf(device) { return this.reach[device.reach] || []; }

  // waiting are the pods that have no node; those that have are starting.
  waiting() { return this.pods.filter((p) => p.state !== 'Starting'); }

  totals() {
    const t = { devices: 0, slots: 0, held: 0, assigned: 0, unreachable: 0 };
    for (const d of this.devices.values()) {
      t.devices++;
      t.slots += d.capacity;
      t.assigned += d.assigned;
      t.held += d.held;
      if (!d.reach) t.unreachable += d.free;
    }
    return t;
  }
}

export const hour = 3600e3;

export function order(a, b) {
  return collator.compare(a, b);
}
const collator = new Intl.Collator('en', { numeric: true });

// prepared adds to a device what is asked of it often.
function prepared(device) {
  device.taken ||= [];
  device.held = 0;
  device.assigned = 0;
  device.missing = 0;
  let beyond = 0;
  for (const t of device.taken) {
    if (t.s === 'Held') device.held++;
    else device.assigned++;
    if (t.s === 'Missing') device.missing++;
    if (t.i >= device.capacity) beyond++;
  }
  device.free = device.capacity - (device.taken.length - beyond);
  device.label ||= device.id || device.name;
  device.text = null;
  return device;
}

// searched is what a device is found by.
function searched(device) {
  if (device.text === null) {
    const words = new Set([device.name, device.label, device.id || '', device.namespace, 'akri.sh/' + device.configuration]);
    for (const t of device.taken) words.add(t.p || '').add(t.n || '');
    device.text = [...words].join('\n').toLowerCase();
  }
  return device.text;
}

// Filters are states that a device is looked for by.
export const filters = {
  all: { title: 'All', fits: () => true },
  free: { title: 'Free slots', fits: (d) => d.free > 0 && d.reach !== '' },
  full: { title: 'Full', fits: (d) => d.free <= 0 },
  assigned: { title: 'Assigned', fits: (d) => d.assigned > 0 },
  problem: { title: 'Problems', fits: (d) => (d.problems && d.problems.length > 0) || d.missing > 0 || d.reach === '' },
};

// select returns the devices that fit what is asked for, in groups.
export function select(model, { text, filter, node, by }) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const fits = filters[filter].fits;
  const reached = node && new Set(Object.entries(model.reach).filter(([, nodes]) => nodes.includes(node)).map(([key]) => key));
  const groups = new Map();
  let count = 0;
  for (const d of model.list()) {
    if (!fits(d)) continue;
    if (node && !reached.has(d.reach) && !d.taken.some((t) => t.n === node)) continue;
    if (words.length && !words.every((w) => searched(d).includes(w) || model.reachOf(d).length === 1 && model.reachOf(d)[0].includes(w))) continue;
    const key = by === 'node' ? d.reach : d.namespace + '/' + d.configuration;
    if (!groups.has(key)) groups.set(key, { key, devices: [], slots: 0, free: 0, held: 0, assigned: 0 });
    const g = groups.get(key);
    g.devices.push(d);
    g.slots += d.capacity;
    g.free += Math.max(0, d.free);
    g.held += d.held;
    g.assigned += d.assigned;
    count++;
  }
  const all = [...groups.values()];
  if (by === 'node') {
    for (const g of all) Object.assign(g, title(model.reach[g.key] || []));
    all.sort((a, b) => a.rank - b.rank || order(a.title, b.title));
  } else {
    for (const g of all) g.title = g.key;
    all.sort((a, b) => order(a.key, b.key));
  }
  return { groups: all, count };
}

// title names a set of nodes: those that share devices come first, what nobody reaches
// before all.
function title(nodes) {
  if (nodes.length === 0) return { rank: 0, title: 'Reached by no node' };
  if (nodes.length === 1) return { rank: 2, title: nodes[0], node: nodes[0] };
  if (nodes.length <= 3) return { rank: 1, title: 'Shared by ' + nodes.slice(0, -1).join(', ') + ' and ' + nodes[nodes.length - 1] };
  return { rank: 1, title: `Shared by ${nodes.length} nodes: ${nodes.slice(0, 2).join(', ')} …` };
}

// slotState is a slot's state as the page shows it, and who has it.
export function slotState(device, index) {
  const taken = device.taken.find((t) => t.i === index);
  if (taken) return { state: taken.s, taken };
  return { state: device.reach ? 'Free' : 'Unreachable', taken: null };
}

export const holder = (taken) => (taken.u ? `${taken.p} and ${taken.u - 1} more` : taken.p) || (taken.r ? 'ResourceClaim ' + taken.r : '') || (taken.n ? 'node ' + taken.n : 'a pod that you may not see');
