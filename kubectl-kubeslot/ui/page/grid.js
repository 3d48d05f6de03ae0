// The grid of devices and their slots. Only what is on the screen, and a little more, is
// in the document.

import { element, middle, number, plural } from './dom.js';
import { holder, slotState } from './model.js';
import { between, drawn, find, place, step } from './layout.js';

// How far beyond the screen rows are made, in pixels.
const beyond = 400;

export class Grid {
  // open is called with the address of what is clicked, tip with a text and where.
  constructor(root, { open, tip }) {
    this.root = root;
    this.open = open;
    this.tip = tip;
    this.rows = new Map(); // elements by index of the row
    this.focus = null; // { name, slot } of the one item that Tab reaches
    this.layout = null;
    root.addEventListener('click', (e) => this.clicked(e));
    root.addEventListener('keydown', (e) => this.pressed(e));
    root.addEventListener('focusin', (e) => this.focused(e.target));
    root.addEventListener('focusout', () => tip(null));
    root.addEventListener('pointerover', (e) => this.hovered(e.target));
    root.addEventListener('pointerleave', () => tip(null));
    addEventListener('scroll', () => this.draw(), { passive: true });
  }

  // show draws what is selected. Cards of devices that are as they were stay.
  show(selected, node) {
    const width = this.root.clientWidth;
    const shape = `${selected.count > 400} ${width} ${node}`;
    if (shape !== this.shape) this.forget();
    this.shape = shape;
    this.node = node;
    this.layout = place(selected, width);
    this.root.style.height = `${this.layout.height}px`;
    this.root.classList.toggle('compact', this.layout.compact);
    if (!this.focus || !find(this.layout, this.focus.name)) {
      const first = this.layout.rows.find((r) => r.devices);
      this.focus = first ? { name: first.devices[0].name, slot: -1 } : null;
    }
    for (const index of this.rows.keys()) if (index >= this.layout.rows.length) this.drop(index);
    this.draw();
  }

  forget() {
    for (const index of [...this.rows.keys()]) this.drop(index);
  }

  drop(index) {
    this.rows.get(index).remove();
    this.rows.delete(index);
  }

  // draw makes the rows on the screen and drops the others.
  draw() {
    if (!this.layout) return;
    const top = this.root.getBoundingClientRect().top;
    const [from, to] = between(this.layout, -top - beyond, -top + innerHeight + beyond);
    const keep = this.root.contains(document.activeElement) && this.focus ? find(this.layout, this.focus.name)?.row : -1;
    for (const index of [...this.rows.keys()]) {
      if ((index < from || index >= to) && index !== keep) this.drop(index);
    }
    for (let index = from; index < to; index++) this.drawRow(index);
  }

  drawRow(index) {
    const row = this.layout.rows[index];
    let to = this.rows.get(index);
    const kind = row.devices ? 'row' : 'head';
    if (to && !to.classList.contains(kind)) {
      this.drop(index);
      to = null;
    }
    if (!to) {
      to = element('div', { class: kind });
      const next = [...this.rows.keys()].filter((i) => i > index).sort((a, b) => a - b)[0];
      this.root.insertBefore(to, next === undefined ? null : this.rows.get(next));
      this.rows.set(index, to);
    }
    to.style.transform = `translateY(${row.top}px)`;
    to.style.height = `${row.height}px`;
    if (!row.devices) {
      const text = JSON.stringify([row.group.title, row.group.devices.length, row.group.free, row.group.held, row.group.assigned, row.group.slots]);
      if (to.dataset.text !== text) {
        to.dataset.text = text;
        to.replaceChildren(...this.head(row.group));
      }
      return;
    }
    to.style.setProperty('--columns', this.layout.columns);
    while (to.children.length > row.devices.length) to.lastElementChild.remove();
    row.devices.forEach((device, i) => {
      const old = to.children[i];
      if (old && old.device === device && old.reached === device.reach) {
        old.setAttribute('aria-label', this.labelOf(device, row.first + i));
        return;
      }
      const card = this.card(device, row.first + i);
      const held = old && old.contains(document.activeElement);
      if (old) old.replaceWith(card);
      else to.append(card);
      if (held) this.take(this.focus, true);
    });
  }

  head(group) {
    const name = group.node ? element('button', { type: 'button', class: 'link', data: { open: 'node/' + encodeURIComponent(group.node) } }, group.title) : group.title;
    return [
      element('h3', {}, name),
      element('span', { class: 'muted' }, plural(group.devices.length, 'device')),
      element('span', { class: 'spacer' }),
      element('span', { class: 'muted numbers' }, `${number(group.held + group.assigned)} of ${number(group.slots)} in use`),
      bar(group),
    ];
  }

  labelOf(device, at) {
    const troubles = (device.problems?.length || 0) + device.missing;
    const problem = troubles ? ', ' + plural(troubles, 'problem') : '';
    return `Device ${device.label}, ${device.name}: ${number(open(device))} of ${plural(device.capacity, 'slot')} free` +
      `${device.reach ? '' : ', reached by no node'}${problem}. ${number(at + 1)} of ${number(this.layout.count)}`;
  }

  card(device, at) {
    const how = drawn(device.capacity, this.layout.compact);
    const problem = device.problems?.length > 0 || device.missing > 0;
    const card = element('div', { class: 'device' + (device.reach ? '' : ' unreachable') + (problem ? ' problem' : ''), role: 'group', 'aria-label': this.labelOf(device, at), data: { name: device.name } },
      element('button', { class: 'name', type: 'button', tabindex: this.tabindex(device, -1), data: { slot: -1 }, 'aria-label': device.label, title: fullName(device) },
        middle(device.label),
        problem ? element('span', { class: 'mark', 'aria-hidden': 'true' }, '!') : null),
      element('span', { class: 'free', 'aria-hidden': 'true' }, this.layout.compact ? `${number(open(device))} free` : `${number(open(device))} of ${number(device.capacity)} free`),
      this.layout.compact ? null : element('span', { class: 'instance' }, device.name),
      how === 'bar' ? bar(device, device.capacity) : element('div', { class: 'slots ' + how }, this.slots(device)));
    card.device = device;
    card.reached = device.reach;
    return card;
  }

  slots(device) {
    const all = [];
    const add = (index) => {
      const { state, taken } = slotState(device, index);
      const elsewhere = this.node && taken && taken.n !== this.node;
      const surplus = index >= device.capacity;
      all.push(element('button', {
        type: 'button', class: `slot ${state.toLowerCase()}${elsewhere ? ' elsewhere' : ''}${surplus ? ' surplus' : ''}`,
        tabindex: this.tabindex(device, index), data: { slot: index }, 'aria-label': slotLabel(index, state, taken, surplus),
      }));
    };
    for (let i = 0; i < device.capacity; i++) add(i);
    for (const t of device.taken) if (t.i >= device.capacity) add(t.i);
    return all;
  }

  tabindex(device, slot) {
    return this.focus && this.focus.name === device.name && this.focus.slot === slot ? 0 : -1;
  }

  // slotsOf is how many slots of a device can be moved to.
  slotsOf(device) {
    return drawn(device.capacity, this.layout.compact) === 'bar' ? 0 : device.capacity;
  }

  item(target) {
    const button = target.closest?.('button[data-slot]');
    const card = button?.closest('.device');
    return card && { button, device: card.device, slot: Number(button.dataset.slot) };
  }

  clicked(e) {
    const link = e.target.closest('[data-open]');
    if (link) return this.open(link.dataset.open);
    const item = this.item(e.target);
    const card = e.target.closest('.device');
    if (!card) return;
    const device = card.device;
    this.open(item && item.slot >= 0 ? address(device, item.slot) : address(device));
  }

  pressed(e) {
    const item = this.item(e.target);
    if (!item || e.altKey || e.ctrlKey || e.metaKey) return;
    if (e.key === 'Escape') return this.tip(null);
    const next = step(this.layout, item.device.name, item.slot, e.key, (d) => this.slotsOf(d));
    if (!next) return;
    e.preventDefault();
    this.take(next);
  }

  // take moves the focus to an item, and makes it first if it is not on the screen.
  take(item, still) {
    const at = find(this.layout, item.name);
    if (!at) return;
    this.button(this.focus)?.setAttribute('tabindex', '-1');
    this.focus = item;
    const row = this.layout.rows[at.row];
    if (!still) {
      const top = this.root.getBoundingClientRect().top + row.top;
      const covered = 120; // by what sticks to the top
      if (top < covered) scrollBy(0, top - covered);
      else if (top + row.height > innerHeight - 16) scrollBy(0, top + row.height - innerHeight + 16);
      this.draw();
    }
    this.drawRow(at.row);
    const button = this.button(item);
    button?.setAttribute('tabindex', '0');
    button?.focus({ preventScroll: true });
  }

  button(item) {
    return item && this.root.querySelector(`.device[data-name="${CSS.escape(item.name)}"] [data-slot="${item.slot}"]`);
  }

  focused(target) {
    const item = this.item(target);
    if (!item) return;
    const next = { name: item.device.name, slot: item.slot };
    if (this.focus && (this.focus.name !== next.name || this.focus.slot !== next.slot)) {
      this.button(this.focus)?.setAttribute('tabindex', '-1');
      item.button.setAttribute('tabindex', '0');
      this.focus = next;
    }
    if (target.matches(':focus-visible')) this.hovered(target);
  }

  hovered(target) {
    const item = this.item(target);
    if (!item || item.slot < 0) return this.tip(null);
    const { state, taken } = slotState(item.device, item.slot);
    this.tip(tipOf(item.device, item.slot, state, taken), item.button);
  }
}

// open is how many slots of a device a pod can get.
const open = (device) => (device.reach ? Math.max(0, device.free) : 0);

function slotLabel(index, state, taken, surplus) {
  const more = surplus ? ', beyond the capacity' : '';
  if (!taken) return `Slot ${index}: ${state.toLowerCase()}`;
  return `Slot ${index}: ${state.toLowerCase()} ${state === 'Missing' ? 'in' : 'by'} ${holder(taken)}${taken.c ? ', container ' + taken.c : ''}${more}`;
}

function tipOf(device, index, state, taken) {
  return { state, title: `${device.label} · slot ${index}`, text: taken ? holder(taken) + (taken.n && taken.p ? ` on ${taken.n}` : '') : state === 'Free' ? 'free' : 'no node reaches the device' };
}

// fullName is what a device's card may have cut, with the id that its label stands for.
const fullName = (device) => [...new Set([device.label, device.id || device.label])].join(' · ');

// bar shows how many of all are held and assigned.
export function bar(of, all = of.slots) {
  const part = (state, n) => n > 0 && element('span', { class: state, style: { 'flex-grow': String(n) } });
  const rest = Math.max(0, all - of.held - of.assigned);
  return element('div', { class: 'bar', 'aria-hidden': 'true' }, part('held', of.held), part('assigned', of.assigned), part('rest', rest || (all ? 0 : 1)));
}

// address is that of a device, or of one of its slots.
export function address(device, slot) {
  const name = encodeURIComponent(device.name);
  return slot === undefined ? 'device/' + name : `slot/${name}/${slot}`;
}

