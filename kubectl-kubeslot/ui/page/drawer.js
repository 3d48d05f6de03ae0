// What is known of one slot, device, pod or node.

import { age, byId, clock, element, number, plural, when } from './dom.js';
import { holder, hour, slotState } from './model.js';
import { address } from './grid.js';
import { asked } from './lists.js';

// How many slots of a device are listed.
const listed = 60;

export class Drawer {
  constructor(model, { open }) {
    this.root = byId('drawer');
    this.model = model;
    this.open = open;
    this.at = null;
    this.fetched = null; // what the server says of what is open
    this.root.addEventListener('keydown', (e) => { if (e.key === 'Escape') this.open(null); });
    this.root.addEventListener('click', (e) => {
      const link = e.target.closest('[data-open]');
      if (link) this.open(link.dataset.open);
      const text = e.target.closest('[data-copy]');
      if (text) this.copy(text);
    });
  }

  // to shows what is at an address; null shows nothing.
  to(at) {
    if (at === this.at) return;
    const before = this.at;
    this.at = at;
    this.fetched = null;
    if (!before) this.opener = document.activeElement;
    if (!at) {
      this.root.hidden = true;
      this.root.replaceChildren();
      if (this.opener?.isConnected) this.opener.focus({ preventScroll: true });
      return;
    }
    this.root.hidden = false;
    this.root.scrollTop = 0;
    this.draw(true);
    this.refresh();
  }

  // refresh asks the server for what the page does not have.
  async refresh() {
    if (!this.at || !this.model.ready) return;
    const [kind, ...name] = this.at.split('/');
    const from = { pod: `api/pods/${name.join('/')}`, node: `api/nodes/${name[0]}`, device: `api/devices/${name[0]}/spans`, slot: `api/devices/${name[0]}/spans` }[kind];
    const at = this.at;
    if (!from || this.asking === at) {
      this.again = true;
      return;
    }
    this.asking = at;
    let answer;
    try {
      const response = await fetch(from);
      answer = await response.json();
    } catch {
      answer = { error: 'The server does not answer.' };
    }
    this.asking = null;
    if (this.at === at) {
      this.fetched = answer;
      this.draw();
    }
    if (this.again) {
      this.again = false;
      setTimeout(() => this.refresh(), kind === 'pod' ? 2000 : 500); // of a pod the API server is asked
    }
  }

  draw(focus) {
    if (!this.at) return;
    const [kind, ...parts] = this.at.split('/');
    let name;
    try {
      name = parts.map(decodeURIComponent);
    } catch { // somebody has changed the address
      return this.open(null);
    }
    const content = { slot: () => this.slot(name[0], Number(name[1])), device: () => this.device(name[0]), pod: () => this.pod(name[0], name[1]), node: () => this.node(name[0]) }[kind]?.();
    if (!content) return this.open(null);
    const active = this.root.contains(document.activeElement) ? document.activeElement.dataset.key || document.activeElement.dataset.open || document.activeElement.dataset.copy : null;
    const text = signature(content);
    if (text !== this.drawn || focus) {
      this.drawn = text;
      this.root.replaceChildren(...content);
      if (focus) this.root.querySelector('h2')?.focus({ preventScroll: true });
      else if (active) [...this.root.querySelectorAll('[data-key],[data-open],[data-copy]')].find((e) => [e.dataset.key, e.dataset.open, e.dataset.copy].includes(active))?.focus({ preventScroll: true });
    }
  }

  top(kind, title, ...more) {
    return element('header', {},
      element('p', { class: 'kind' }, kind),
      element('h2', { id: 'drawer-title', tabindex: -1, data: { key: 'title' } }, title),
      element('button', { type: 'button', class: 'icon close', 'aria-label': 'Close', data: { open: '', key: 'close' } }, '✕'),
      ...more);
  }

  slot(name, index) {
    const device = this.model.devices.get(name);
    if (!device) return [this.top('Slot', `${name}-${index}`), element('p', { class: 'note' }, 'This device is gone.')];
    const { state, taken } = slotState(device, index);
    const rows = [];
    if (taken) {
      rows.push([taken.u ? `First of ${taken.u} pods` : 'Pod', taken.p ? podLink(taken.p) : 'one that you may not see'], ['ResourceClaim', taken.r], ['Container', taken.c], ['Node', taken.n && link('node/' + encodeURIComponent(taken.n), taken.n)], ['Since', taken.t ? since(taken.t, this.model) : ''],
        ['Asked for', taken.l === 'IL' ? 'this device (instance level)' : taken.l === 'CL' ? `any device of ${device.configuration} (configuration level)` : '']);
    }
    rows.push(['Device', link(address(device), device.label)], ['Configuration', `${device.namespace}/${device.configuration}`]);
    return [
      this.top('Slot', element('span', { class: 'mono' }, `${name}-${index}`), pill(state)),
      element('p', { class: 'note' }, explain(state, taken)),
      facts(rows),
      this.spans(device, [index]),
      taken?.p ? command('Look at the pod', `kubectl kubeslot -n ${taken.p.split('/')[0]} pod ${taken.p.split('/')[1]}`) : state === 'Free' ? command('Ask for a device of this kind', `akri.sh/${device.configuration}: 1`) : null,
    ].filter(Boolean);
  }

  device(name) {
    const device = this.model.devices.get(name);
    if (!device) return [this.top('Device', name), element('p', { class: 'note' }, 'This device is gone.')];
    const nodes = this.model.reachOf(device);
    const indices = [];
    for (let i = 0; i < device.capacity && i < listed; i++) indices.push(i);
    for (const t of device.taken) if (t.i >= Math.min(listed, device.capacity) && indices.length < 2 * listed) indices.push(t.i);
    return [
      this.top('Device', device.label),
      problems(device.problems),
      facts([['ID', device.id !== device.label && device.id], ['Instance', element('span', { class: 'mono' }, device.name)], ['Configuration', `${device.namespace}/${device.configuration}`],
        ['Slots', `${number(device.held)} held, ${number(device.assigned)} assigned, ${number(Math.max(0, device.free))} free`],
        [device.shared ? 'Shared by' : 'Node', nodes.length ? element('span', { class: 'links' }, nodes.slice(0, 12).map((n) => link('node/' + encodeURIComponent(n), n)), nodes.length > 12 ? `and ${plural(nodes.length - 12, 'more', 'more')}` : null) : 'no node reaches it']]),
      element('h3', {}, 'Slots'),
      element('ul', { class: 'rows' }, indices.map((i) => this.slotRow(device, i))),
      device.capacity > listed ? element('p', { class: 'note' }, `Free slots above ${listed} are not listed.`) : null,
      this.spans(device, indices.slice(0, 24)),
      command('Ask for this device', `akri.sh/${device.name}: 1`),
    ].filter(Boolean);
  }

  slotRow(device, index) {
    const { state, taken } = slotState(device, index);
    return slotRow(`slot/${encodeURIComponent(device.name)}/${index}`, state, `${index}`, taken ? holder(taken) : state.toLowerCase(), taken?.t, this.model);
  }

  // spans shows when slots were taken in the last hour.
  spans(device, indices) {
    if (!Array.isArray(this.fetched)) return null;
    const to = this.model.now();
    const from = to - hour;
    const left = (t) => `${Math.max(0, (t - from) / hour * 100).toFixed(2)}%`;
    const label = (s) => `${s.pod || 'somebody'}, ${s.state.toLowerCase()} ${clock(s.from)} to ${s.to ? clock(s.to) : 'now'}`;
    const recorded = this.model.recorded > from ? left(this.model.recorded) : null;
    return element('section', { class: 'history' }, element('h3', {}, 'Last hour'),
      indices.map((i) => {
        const own = this.fetched.filter((s) => s.slot === i);
        return element('div', { class: 'track' },
          indices.length > 1 ? element('span', { class: 'index', 'aria-hidden': 'true' }, i) : null,
          element('div', { class: 'spans', role: 'img', 'aria-label': `Slot ${i}: ` + (own.map(label).join('; ') || 'nobody had it') },
            recorded ? element('span', { class: 'unrecorded', style: { width: recorded }, title: 'before: only what is still there' }) : null,
            own.map((s) => element('span', { class: 'span ' + s.state.toLowerCase(), style: { left: left(s.from), right: `calc(100% - ${left(s.to || to)})` }, title: label(s) }))));
      }),
      element('div', { class: 'scale', 'aria-hidden': 'true' }, element('span', {}, clock(from)), element('span', {}, 'now')));
  }

  pod(namespace, name) {
    const short = this.model.pods.find((p) => p.namespace === namespace && p.name === name);
    const pod = this.fetched;
    const title = [element('span', { class: 'muted' }, namespace + '/'), name];
    if (!pod) return [this.top('Pod', element('span', {}, title), short ? pill(short.state) : null), short ? element('p', { class: 'note' }, 'It asks for ' + asked(short)) : ''].filter(Boolean);
    if (pod.error) return [this.top('Pod', element('span', {}, title)), element('p', { class: 'note' }, pod.error)];
    const waits = (pod.waits || []).map((w) => element('section', { class: 'wait' },
      element('h3', {}, w.resource ? (w.count ? `${number(w.count)} × ` : '') + resourceName(w.resource) : { Scheduler: 'The scheduler says', Kubelet: 'The kubelet says' }[w.source] || 'It waits'),
      w.container ? element('p', { class: 'muted small' }, 'container ' + w.container) : null,
      element('p', { class: 'because' }, sentence(w.why || w.reason || '')),
      w.needs ? element('p', { class: 'needs' }, element('strong', {}, 'What would let it run: '), sentence(w.needs)) : null,
      w.held ? element('details', { open: w.held <= 8 }, element('summary', {}, `${plural(w.held, 'slot')} that it could use ${w.held === 1 ? 'is' : 'are'} taken`),
        element('ul', { class: 'rows' }, w.holders.map((s) => this.held(s)))) : null));
    // What is said of each condition is not said again.
    const needs = (pod.needs || []).filter((n) => !(pod.waits || []).some((w) => w.needs === n));
    return [
      this.top('Pod', element('span', {}, title), pill(pod.state || pod.phase)),
      facts([['Node', pod.node ? link('node/' + encodeURIComponent(pod.node), pod.node) : 'none yet'], ['Asks for', short ? asked(short) : ''], ['Waits since', short?.since ? since(short.since, this.model) : '']]),
      waits.length ? element('h3', { class: 'section' }, 'Why it waits') : null,
      ...waits,
      needs.length ? element('section', { class: 'wait needs-all' }, element('h3', {}, 'What would let it run'), element('ul', { class: 'plain' }, needs.map((n) => element('li', {}, sentence(n))))) : null,
      pod.slots?.length ? element('section', {}, element('h3', {}, 'Slots that it has'), element('ul', { class: 'rows' }, pod.slots.map((s) => this.held(s, true)))) : null,
      pod.says?.length ? element('section', {}, element('h3', {}, 'In the words of Kubernetes'), pod.says.map((s) => element('blockquote', {}, s))) : null,
      !waits.length && !pod.slots?.length && !pod.says?.length && !needs.length ? element('p', { class: 'note' }, 'It neither has nor waits for a device.') : null,
      command('The same in a terminal', `kubectl kubeslot -n ${namespace} pod ${name}`),
    ].filter(Boolean);
  }

  held(s, own) {
    const at = s.name.lastIndexOf('-');
    const who = s.resourceClaim && own ? `ResourceClaim ${s.resourceClaim}` : own ? `container ${s.container}` : s.users?.length > 1 ? `${s.users[0]} and ${s.users.length - 1} more` : s.pod ? `${s.podNamespace}/${s.pod}` : s.resourceClaim ? `ResourceClaim ${s.resourceClaim}` : 'node ' + s.node;
    return slotRow(`slot/${encodeURIComponent(s.instance)}/${s.name.slice(at + 1)}`, s.state, `${s.device || s.instance} · ${s.name.slice(at + 1)}`, who, s.since ? Date.parse(s.since) / 1000 : 0, this.model);
  }

  node(name) {
    const node = this.fetched;
    if (!node) return [this.top('Node', name)];
    if (node.error) return [this.top('Node', name), element('p', { class: 'note' }, node.error)];
    const devices = node.instances || [];
    const more = node.reaches - devices.length;
    return [
      this.top('Node', name),
      node.reports ? null : element('p', { class: 'note' }, this.model.missing.some((m) => m.startsWith('deviceslices')) ? 'You may not see what it reports.' : 'It has no DeviceSlice: kubecri does not run there, or cannot reach the API server.'),
      problems(node.problems),
      facts([['Reaches', plural(node.reaches, 'device')], ['Its pods have', plural(node.has, 'slot')]]),
      node.slots?.length ? element('section', {}, element('h3', {}, 'Slots of its pods'), element('ul', { class: 'rows' }, node.slots.map((s) => this.held(s)))) : null,
      devices.length ? element('section', {}, element('h3', {}, 'Devices that it reaches'), element('ul', { class: 'rows' }, devices.map((d) => element('li', {},
        element('button', { type: 'button', class: 'row', data: { open: 'device/' + encodeURIComponent(d.name) } },
          element('span', { class: 'index' }, d.device || d.name), element('span', { class: 'who mono' }, d.name), element('span', { class: 'age' }, `${d.free}/${d.slots} free`))))),
        more > 0 ? element('p', { class: 'note' }, `and ${plural(more, 'more', 'more')}`) : null) : null,
      command('The same in a terminal', `kubectl kubeslot node ${name}`),
    ].filter(Boolean);
  }

  async copy(button) {
    try {
      await navigator.clipboard.writeText(button.dataset.copy);
      button.textContent = 'Copied';
    } catch {
      getSelection().selectAllChildren(button.previousElementSibling);
      button.textContent = 'Selected';
    }
    setTimeout(() => { button.textContent = 'Copy'; }, 1500);
  }
}

// signature tells whether there is anything new to draw.
const signature = (content) => content.map((c) => c.outerHTML || c.textContent).join('');

// resourceName is the name as it stands in a pod; those of Kubernetes' own and of others are complete.
const resourceName = (of) => (/\/|^(cpu|memory|ephemeral-storage|hugepages-.*)$/.test(of) ? of : 'akri.sh/' + of);
const sentence = (text) => text && text[0].toUpperCase() + text.slice(1).replace(/[\s,;]+$/, '').replace(/([^.!?])$/, '$1.');
const link = (to, text) => element('button', { type: 'button', class: 'link', data: { open: to } }, text);
const podLink = (name) => link('pod/' + name.split('/').map(encodeURIComponent).join('/'), name);
const pill = (state) => element('span', { class: 'pill ' + String(state).toLowerCase() }, state);
const since = (t, model) => element('span', {}, element('time', { data: { since: t } }, age(model.now() - t * 1000)), element('span', { class: 'muted' }, ' · ' + when(t * 1000)));

function facts(rows) {
  return element('dl', {}, rows.filter(([, value]) => value).map(([name, value]) => element('div', {}, element('dt', {}, name), element('dd', {}, value))));
}

function slotRow(to, state, index, who, t, model) {
  return element('li', {}, element('button', { type: 'button', class: 'row', data: { open: to } },
    element('i', { class: 'slot ' + state.toLowerCase(), 'aria-hidden': 'true' }),
    element('span', { class: 'index' }, index),
    element('span', { class: 'who' }, who),
    t ? element('time', { class: 'age', data: { since: t } }, age(model.now() - t * 1000)) : null));
}

function problems(all) {
  return all?.length ? element('ul', { class: 'problems' }, all.map((p) => element('li', {}, p))) : null;
}

function command(title, text) {
  return element('section', { class: 'command' }, element('h3', {}, title),
    element('div', {}, element('code', {}, text), element('button', { type: 'button', class: 'text', data: { copy: text } }, 'Copy')));
}

function explain(state, taken) {
  switch (state) {
    case 'Free': return 'Nobody has this slot.';
    case 'Assigned': return 'The scheduler gave it to this pod, whose container the node has not begun to make.';
    case 'Missing': return 'The container runs without the device: no node has claimed the slot for it. kubectl kubeslot pod says why.';
    case 'Held': return taken.p ? 'The node has claimed it for this container.' : 'A node has claimed it.';
    case 'Unreachable': return 'No node reaches the device, so no pod can get this slot.';
  }
  return '';
}
