// What waits, what is wrong and what happened lately.

import { age, clock, clockSeconds, element, middle, number, plural, setText } from './dom.js';

// Of a list no more is shown; a line says how many are left out.
const most = 100;

// asked is what a pod asks for, in words.
export const asked = (pod) => (pod.asks || []).map((a) => `${number(a.count)} × ${a.resource}`).join(', ');

// sync makes the children of a list those of the items, and makes anew only those whose
// text has changed, so that the focus stays where it is.
function sync(root, items, keyOf, textOf, make) {
  const old = new Map([...root.children].map((c) => [c.dataset.key, c]));
  let at = root.firstElementChild;
  for (const item of items) {
    const key = keyOf(item);
    const text = textOf(item);
    let child = old.get(key);
    old.delete(key);
    if (!child || child.dataset.text !== text) {
      const made = make(item);
      made.dataset.key = key;
      made.dataset.text = text;
      if (child) {
        if (at === child) at = made;
        child.replaceWith(made);
      }
      child = made;
    }
    if (child !== at) root.insertBefore(child, at);
    else at = at.nextElementSibling;
  }
  for (const child of old.values()) child.remove();
}

const empty = (text) => ({ key: 'empty', make: () => element('li', { class: 'empty' }, text) });

function show(root, items, none) {
  const shown = items.slice(0, most);
  if (!items.length) shown.push(empty(none));
  if (items.length > most) shown.push({ key: 'more', text: String(items.length), make: () => element('li', { class: 'empty' }, `and ${plural(items.length - most, 'more', 'more')}`) });
  sync(root, shown, (i) => i.key, (i) => i.text || '', (i) => i.make());
}

export function showWaiting(root, model) {
  show(root, model.pods.map((p) => {
    const name = `${p.namespace}/${p.name}`;
    return {
      key: name,
      text: JSON.stringify(p),
      make: () => element('li', {}, element('button', { type: 'button', class: 'entry', data: { open: `pod/${encodeURIComponent(p.namespace)}/${encodeURIComponent(p.name)}` } },
        element('span', { class: 'line' },
          element('span', { class: 'what' }, element('span', { class: 'muted' }, p.namespace + '/'), element('wbr'), p.name),
          element('time', { class: 'age', data: { since: p.since || '' } })),
        element('span', { class: 'line sub' }, element('span', { class: 'pill ' + p.state.toLowerCase() }, p.state), asked(p)),
        p.why?.length ? element('span', { class: 'line why' }, p.why[0]) : null)),
    };
  }), 'No pod waits for a device.');
  ages(root, model);
}

// ages writes how long ago things began, wherever they are on the page.
export function ages(root, model) {
  for (const t of root.querySelectorAll('[data-since]')) {
    const since = Number(t.dataset.since) * 1000;
    if (since) setText(t, age(model.now() - since));
  }
}

export function showProblems(root, model) {
  show(root, model.problems.map((p) => ({
    key: p.object + '\n' + p.problem,
    make: () => {
      const [kind, ...name] = p.object.split('/');
      const open = kind === 'instance' ? 'device/' + encodeURIComponent(name[name.length - 1]) : kind === 'node' ? 'node/' + encodeURIComponent(name[0]) : kind === 'pod' ? 'pod/' + name.map(encodeURIComponent).join('/') : null;
      const what = [element('span', { class: 'line' }, element('span', { class: 'what' }, element('span', { class: 'muted' }, kind + '/'), element('wbr'), name.join('/'))), element('span', { class: 'line why' }, p.problem)];
      return element('li', {}, open ? element('button', { type: 'button', class: 'entry', data: { open } }, what) : element('div', { class: 'entry' }, what));
    },
  })), 'Nothing is wrong.');
}

const sentences = {
  Assigned: (e) => [podName(e.pod), ' was given ', slot(e)],
  Held: (e) => [(e.pod ? podName(e.pod) : strong('node ' + e.node)), ' holds ', slot(e)],
  Missing: (e) => [podName(e.pod), ' runs without ', slot(e)],
  Released: (e) => [(e.pod ? podName(e.pod) : strong('node ' + e.node)), ' released ', slot(e)],
  Waits: (e) => [podName(e.pod), ' waits for devices'],
  Placed: (e) => [podName(e.pod), ' has its devices'],
  Left: (e) => [podName(e.pod), ' waits no longer: it is gone'],
  Found: (e) => ['Device ', deviceName(e), ' was found'],
  Gone: (e) => ['Device ', deviceName(e), ' is gone'],
  Lost: (e) => ['No node reaches device ', deviceName(e)],
  Reached: (e) => ['Device ', deviceName(e), ' is reached again'],
};

const strong = (text) => element('strong', {}, text);
// podName is a pod's namespace, pale, and its name; lines break between the two.
const podName = (name) => {
  const [namespace, pod] = name.split('/');
  return element('span', {}, element('span', { class: 'muted' }, namespace + '/'), element('wbr'), strong(pod));
};
const deviceName = (e) => element('strong', { title: e.label || e.device }, middle(e.label || e.device));
const slot = (e) => element('span', { title: e.label || e.device }, middle(e.label || e.device), element('span', { class: 'muted' }, ` slot ${e.slot || 0}`));

function opens(e) {
  if (['Assigned', 'Held', 'Missing', 'Released'].includes(e.kind)) return `slot/${encodeURIComponent(e.device)}/${e.slot || 0}`;
  if (e.pod) return 'pod/' + e.pod.split('/').map(encodeURIComponent).join('/');
  return 'device/' + encodeURIComponent(e.device);
}

const told = 80;
const numbered = new WeakMap(); // events get a key once: equal ones may happen twice
let counted = 0;

export function showActivity(root, model) {
  const items = model.events.slice(-told).reverse().map((e) => {
    if (!numbered.has(e)) numbered.set(e, String(counted++));
    return {
      key: numbered.get(e),
      make: () => element('li', {}, element('button', { type: 'button', class: 'entry event', data: { open: opens(e) } },
        element('i', { class: 'dot ' + e.kind.toLowerCase(), 'aria-hidden': 'true' }),
        element('span', { class: 'told' }, (sentences[e.kind] || ((e) => [e.kind]))(e)),
        element('time', { class: 'age', title: clockSeconds(e.time) }, clock(e.time)))),
    };
  });
  show(root, items, 'Nothing has happened yet.');
}

// announcement says in words what the events of an update are, for a screen reader.
export function announcement(events) {
  const count = (kind) => events.filter((e) => e.kind === kind);
  const parts = [];
  const slots = (kind, word) => { const n = count(kind).length; if (n) parts.push(`${plural(n, 'slot')} ${word}`); };
  slots('Assigned', 'assigned');
  slots('Held', 'held');
  slots('Missing', 'missing in a container that runs');
  slots('Released', 'released');
  for (const [kind, one, many] of [['Waits', 'waits for devices', 'pods wait for devices'], ['Placed', 'has its devices', 'pods have their devices']]) {
    const all = count(kind);
    if (all.length === 1) parts.push(`${all[0].pod} ${one}`);
    else if (all.length) parts.push(`${all.length} ${many}`);
  }
  for (const [kind, word] of [['Found', 'found'], ['Gone', 'gone'], ['Lost', 'not reached']]) {
    const all = count(kind);
    if (all.length === 1) parts.push(`device ${all[0].label || all[0].device} ${word}`);
    else if (all.length) parts.push(`${all.length} devices ${word}`);
  }
  return parts.join('; ');
}
