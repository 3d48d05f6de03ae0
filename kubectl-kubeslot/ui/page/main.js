import { byId, element, number, plural, setText } from './dom.js';
import { filters, Model, select } from './model.js';
import { Grid, bar } from './grid.js';
import { Chart } from './chart.js';
import { Drawer } from './drawer.js';
import { ages, announcement, showActivity, showProblems, showWaiting } from './lists.js';
import { connect } from './stream.js';
import { themeButton } from './theme.js';

const model = new Model();
const asked = { text: '', filter: 'all', node: '', by: 'node' };

const open = (at) => {
  if (at) location.hash = at;
  else if (location.hash) history.pushState(null, '', location.pathname);
  drawer.to(at || null);
};
const grid = new Grid(byId('grid'), { open, tip });
const chart = new Chart(byId('chart'));
const drawer = new Drawer(model, { open });
addEventListener('hashchange', () => drawer.to(location.hash.slice(1) || null));
addEventListener('popstate', () => drawer.to(location.hash.slice(1) || null));

for (const id of ['waiting', 'activity', 'problems', 'notices', 'nodes']) {
  byId(id).addEventListener('click', (e) => {
    const link = e.target.closest('[data-open]');
    if (link) open(link.dataset.open);
  });
}

// What is shown is drawn at most once a frame, however many updates come.
let due = 0;
function draw() {
  if (!due) due = requestAnimationFrame(() => { due = 0; drawAll(); });
}

function drawAll() {
  if (!model.ready) return;
  const began = performance.now();
  document.body.classList.add('ready');
  drawSummary();
  drawNotices();
  drawNodes();
  drawFilters();
  drawGrid();
  chart.show(model);
  showWaiting(byId('waiting'), model);
  byId('problems-card').hidden = !model.problems.length;
  showProblems(byId('problems'), model);
  setText(byId('problems-count'), number(model.problems.length));
  setText(byId('waiting-count'), model.pods.length ? number(model.pods.length) : '');
  showActivity(byId('activity'), model);
  drawer.draw();
  measured(began);
}

// measured leaves for whoever looks how long drawing took, and when it was first done.
let first = true;
function measured(began) {
  if (first) performance.mark('kubeslot-drawn');
  first = false;
  performance.clearMeasures('kubeslot-draw');
  performance.measure('kubeslot-draw', { start: began, end: performance.now() });
}

function drawGrid() {
  const selected = select(model, asked);
  const all = model.devices.size;
  setText(byId('devices-count'), selected.count === all ? number(all) : `${number(selected.count)} of ${number(all)}`);
  const nothing = byId('nothing');
  nothing.hidden = selected.count > 0;
  setText(nothing, all ? 'No device is like that.' : model.configurations.length ? 'No node has found a device. If a Configuration has a problem, it is listed under Problems.' : 'There is no Configuration: nothing is looked for.');
  grid.show(selected, asked.node);
}

function drawSummary() {
  const t = model.totals();
  const used = t.held + t.assigned;
  setText(byId('stat-devices'), number(t.devices));
  setText(byId('stat-devices-detail'), `of ${plural(model.configurations.length, 'Configuration')}, on ${plural(model.nodes.length, 'node')}`);
  byId('stat-slots').replaceChildren(number(used), element('small', {}, ` of ${number(t.slots)}`), element('small', { class: 'right' }, t.slots ? `${number(Math.max(0, t.slots - used - t.unreachable))} free` : ''));
  const strip = byId('stat-bar');
  strip.replaceChildren(...bar({ held: t.held, assigned: t.assigned, slots: t.slots }).children);
  strip.setAttribute('aria-label', `${number(t.held)} held, ${number(t.assigned)} assigned, of ${plural(t.slots, 'slot')}`);
  const waiting = byId('stat-waiting');
  const pods = model.waiting();
  setText(waiting, number(pods.length));
  waiting.classList.toggle('some', pods.length > 0);
  const starting = model.pods.length - pods.length;
  const longest = pods.find((p) => p.since);
  byId('stat-waiting-detail').replaceChildren(...(longest ? ['longest ', element('time', { data: { since: longest.since } })] : starting ? [] : ['none']),
    longest && starting ? ' · ' : '', starting ? `${number(starting)} starting` : '');
  const problems = byId('stat-problems');
  setText(problems, number(model.problems.length));
  problems.classList.toggle('bad', model.problems.length > 0);
  setText(byId('stat-problems-detail'), model.problems.length ? 'see the list' : model.missing.length ? 'of what you may see' : 'none found');
  ages(document.body, model);
  const about = [model.about.cluster, model.about.user].filter(Boolean).join(' · ');
  setText(byId('about'), about);
  byId('logout').hidden = !model.about.logout;
}

function drawNotices() {
  const notices = [];
  if (model.error) notices.push(element('p', { class: 'notice bad' }, 'Out of date: ' + model.error));
  if (model.missing.length) {
    notices.push(element('p', { class: 'notice' }, `You may not list ${model.missing.join(', ')}: what they say is missing here.`));
  }
  const root = byId('notices');
  if (root.textContent !== notices.map((n) => n.textContent).join('')) root.replaceChildren(...notices);
}

// Of a great many nodes those with problems and the busiest are shown.
const shownNodes = 60;

function drawNodes() {
  const root = byId('nodes');
  root.hidden = asked.by !== 'node' || model.nodes.length < 2;
  if (root.hidden) return;
  let nodes = model.nodes;
  if (nodes.length > shownNodes) {
    nodes = [...nodes].sort((a, b) => (asked.node === b.name) - (asked.node === a.name) || a.reports - b.reports || b.taken - a.taken).slice(0, shownNodes);
  }
  const text = JSON.stringify([nodes, asked.node, model.missing]);
  if (root.dataset.text === text) return;
  root.dataset.text = text;
  const focused = root.contains(document.activeElement) && document.activeElement.dataset.node;
  const unknown = model.missing.some((m) => m.startsWith('deviceslices'));
  root.replaceChildren(...nodes.map((n) => element('button', { type: 'button', class: 'chip', 'aria-pressed': asked.node === n.name ? 'true' : 'false', data: { node: n.name },
    'aria-label': `Node ${n.name}: ${plural(n.taken, 'slot')}${n.reports || unknown ? '' : ', does not report'}` },
    element('i', { class: 'light ' + (n.reports || unknown ? 'good' : 'bad') }), n.name, element('span', { class: 'muted' }, number(n.taken)))),
    model.nodes.length > shownNodes ? element('span', { class: 'muted' }, `and ${number(model.nodes.length - shownNodes)} more: write a node's name into the search field`) : '');
  if (focused) root.querySelector(`[data-node="${CSS.escape(focused)}"]`)?.focus();
}

byId('nodes').addEventListener('click', (e) => {
  const chip = e.target.closest('[data-node]');
  if (!chip) return;
  asked.node = asked.node === chip.dataset.node ? '' : chip.dataset.node;
  drawNodes();
  drawGrid();
});

function drawFilters() {
  const root = byId('filters');
  const counts = Object.fromEntries(Object.keys(filters).map((k) => [k, 0]));
  for (const d of model.devices.values()) for (const [k, f] of Object.entries(filters)) if (f.fits(d)) counts[k]++;
  for (const [key, filter] of Object.entries(filters)) {
    let button = root.querySelector(`[data-filter="${key}"]`);
    if (!button) {
      button = element('button', { type: 'button', class: 'chip', data: { filter: key } }, filter.title, element('span', { class: 'muted' }));
      root.append(button);
    }
    button.hidden = key !== 'all' && counts[key] === 0 && asked.filter !== key;
    button.setAttribute('aria-pressed', String(asked.filter === key));
    setText(button.lastChild, number(counts[key]));
  }
}

byId('filters').addEventListener('click', (e) => {
  const chip = e.target.closest('[data-filter]');
  if (!chip) return;
  asked.filter = chip.dataset.filter;
  drawFilters();
  drawGrid();
});

for (const radio of document.querySelectorAll('input[name=group]')) {
  radio.checked = radio.value === asked.by; // browsers keep it over a reload
  radio.addEventListener('change', () => {
    asked.by = radio.value;
    if (asked.by !== 'node') asked.node = '';
    draw();
  });
}

const search = byId('search');
search.value = '';
search.addEventListener('input', () => {
  asked.text = search.value;
  draw();
});
search.addEventListener('keydown', (e) => {
  if (e.key !== 'Escape') return;
  search.value = asked.text = '';
  draw();
});
addEventListener('keydown', (e) => {
  if (e.key === '/' && !e.ctrlKey && !e.metaKey && !e.altKey && !e.target.closest('input')) {
    e.preventDefault();
    search.focus();
  }
  if (e.key === 'Escape' && !drawer.root.hidden && !e.target.closest('input')) open(null);
});

// tip shows a short text at an element, null hides it.
function tip(what, at) {
  const root = byId('tip');
  root.hidden = !what;
  if (!what) return;
  root.replaceChildren(element('i', { class: 'slot ' + what.state.toLowerCase() }), element('span', {}, element('strong', {}, what.title), element('span', { class: 'line' }, what.text)));
  const box = at.getBoundingClientRect();
  const width = root.offsetWidth;
  root.style.left = `${Math.max(8, Math.min(innerWidth - width - 8, box.left + box.width / 2 - width / 2))}px`;
  root.style.top = `${box.top - root.offsetHeight - 8 < 8 ? box.bottom + 8 : box.top - root.offsetHeight - 8}px`;
}
addEventListener('scroll', () => tip(null), { passive: true });

// What happens is told to screen readers at most each 5 s.
let untold = [];
let telling = 0;
function tell(events) {
  untold.push(...events);
  if (telling || !untold.length) return;
  telling = setTimeout(() => {
    telling = 0;
    setText(byId('announce'), announcement(untold));
    untold = [];
  }, untold.length === events.length ? 500 : 5000);
}

let width = 0;
new ResizeObserver(() => {
  if (document.documentElement.clientWidth === width) return;
  width = document.documentElement.clientWidth;
  draw();
}).observe(document.documentElement);
setInterval(() => {
  ages(document.body, model);
  chart.show(model);
}, 5000);
setInterval(() => drawer.refresh(), 15e3);
themeButton(byId('theme'));

connect({
  about(about) { model.about = about; },
  update(update) {
    model.apply(update);
    if (!update.full && update.events) tell(update.events);
    if (update.full) {
      draw();
      requestAnimationFrame(() => { if (location.hash) drawer.to(location.hash.slice(1)); drawer.refresh(); });
      return;
    }
    draw();
    if (update.devices || update.pods || update.gone) drawer.refresh();
  },
  state(state) {
    const live = byId('live');
    if (state === 'refused') return location.reload();
    live.dataset.state = state;
    setText(live, state === 'live' ? 'Live' : model.ready ? 'Reconnecting' : 'Connecting');
  },
});
