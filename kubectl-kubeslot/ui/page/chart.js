// The last hour: how many slots were in use, and how many pods waited.

import { clock, element, number, plural, svg } from './dom.js';
import { hour } from './model.js';

const margin = { left: 34, right: 10, top: 8, between: 10, bottom: 20 };
const heights = { slots: 92, waiting: 22 };
const height = margin.top + heights.slots + margin.between + heights.waiting + margin.bottom;

export class Chart {
  constructor(root) {
    this.root = root;
    this.cursor = null; // a time
    this.box = element('div', { class: 'plot', role: 'slider', tabindex: 0, 'aria-label': 'Slots in use in the last hour, minutes ago',
      'aria-valuemin': -60, 'aria-valuemax': 0, 'aria-valuenow': 0 });
    this.readout = element('p', { class: 'readout', 'aria-hidden': 'true' });
    root.append(this.readout, this.box);
    this.box.addEventListener('pointermove', (e) => this.point(this.timeAt(e.clientX - this.box.getBoundingClientRect().left)));
    this.box.addEventListener('pointerleave', () => this.point(null));
    this.box.addEventListener('blur', () => this.point(null));
    this.box.addEventListener('keydown', (e) => {
      const by = { ArrowLeft: -60e3, ArrowRight: 60e3, PageUp: -600e3, PageDown: 600e3, Home: -hour, End: hour }[e.key];
      if (!by || !this.model?.ready) return;
      e.preventDefault();
      this.point(Math.min(this.to, Math.max(this.from, (this.cursor ?? this.to) + by)));
    });
  }

  get from() { return this.to - hour; }

  timeAt(x) {
    const t = this.from + (x - this.left) / this.width * hour;
    return Math.min(this.to, Math.max(this.from, t));
  }

  x(t) { return this.left + (Math.max(t, this.from) - this.from) / hour * this.width; }

  show(model) {
    this.model = model;
    if (!model.ready) return;
    this.to = model.now();
    const points = this.steps(model);
    const most = ceiling(Math.max(...points.map((p) => p.held + p.assigned), 1), points[points.length - 1].total);
    this.left = Math.max(margin.left, 14 + 7 * number(most).length);
    this.width = Math.max(80, this.box.clientWidth - this.left - margin.right);
    const mostWaiting = Math.max(...points.map((p) => p.waiting), 1);
    const base = margin.top + heights.slots;
    const y = (n) => base - n / most * heights.slots;
    const floor = base + margin.between + heights.waiting;
    const yw = (n) => floor - n / mostWaiting * heights.waiting;
    const right = this.left + this.width;
    const parts = [];
    for (const n of [0, most / 2, most]) {
      parts.push(svg('line', { class: 'gridline', x1: this.left, x2: right, y1: y(n), y2: y(n) }),
        svg('text', { class: 'tick', x: this.left - 8, y: y(n) + 4, 'text-anchor': 'end' }, Number.isInteger(n) ? number(n) : ''));
    }
    for (let t = Math.ceil(this.from / 600e3) * 600e3; t <= this.to; t += 600e3) {
      if (this.width < 420 && (t / 600e3) % 2) continue;
      if (this.x(t) > this.left + 14 && this.x(t) < right - 14) parts.push(svg('text', { class: 'tick', x: this.x(t), y: height - 4, 'text-anchor': 'middle' }, clock(t)));
    }
    parts.push(svg('path', { class: 'area held', d: area(points, (p) => this.x(p.time), () => y(0), (p) => y(p.held), right) }),
      svg('path', { class: 'area assigned', d: area(points, (p) => this.x(p.time), (p) => y(p.held), (p) => y(p.held + p.assigned), right) }),
      svg('path', { class: 'edge held', d: edge(points, (p) => this.x(p.time), (p) => y(p.held), right) }));
    if (points.some((p) => p.waiting)) {
      parts.push(svg('path', { class: 'area waiting', d: area(points, (p) => this.x(p.time), () => floor, (p) => yw(p.waiting), right) }),
        svg('text', { class: 'tick waiting', x: this.left - 8, y: floor - heights.waiting / 2 + 4, 'text-anchor': 'end' }, number(mostWaiting)));
    }
    parts.push(svg('line', { class: 'gridline', x1: this.left, x2: right, y1: floor, y2: floor }));
    const begun = this.x(model.recorded);
    if (model.recorded > this.from) {
      parts.push(svg('rect', { class: 'before', x: this.left, y: 0, width: Math.max(0, begun - this.left), height: floor }),
        svg('line', { class: 'begun', x1: begun, x2: begun, y1: margin.top - 4, y2: floor }));
      if (begun - this.left > 300) {
        parts.push(svg('text', { class: 'tick', x: begun - 8, y: margin.top + 8, 'text-anchor': 'end' }, 'before: only what is still there'));
      }
    }
    this.line = svg('line', { class: 'cursor', y1: margin.top, y2: floor, visibility: 'hidden' });
    this.box.replaceChildren(svg('svg', { width: this.left + this.width + margin.right, height, 'aria-hidden': 'true' }, parts, this.line));
    this.point(this.cursor);
  }

  // steps are the points from the beginning of the hour to now.
  steps(model) {
    const zero = { time: this.from, held: 0, assigned: 0, total: 0, waiting: 0 };
    const points = model.points.length ? model.points.filter((p) => p.time <= this.to) : [];
    if (!points.length) points.push(zero);
    return points;
  }

  // point shows how it was at a time; null shows how it is.
  point(t) {
    this.cursor = t;
    if (!this.model?.ready || !this.line) return;
    const at = t ?? this.to;
    const p = this.model.points.findLast((p) => p.time <= at) || this.model.points[0];
    if (!p) return;
    const text = `${plural(p.held, 'slot')} held, ${number(p.assigned)} assigned, ${plural(p.waiting, 'pod')} waiting`;
    this.readout.textContent = t === null ? '' : `${clock(at)} · ${text}`;
    this.box.setAttribute('aria-valuenow', Math.round((at - this.to) / 60e3));
    this.box.setAttribute('aria-valuetext', `${clock(at)}: ${text}${at < this.model.recorded ? ', of what is still there' : ''}`);
    this.line.setAttribute('visibility', t === null ? 'hidden' : 'visible');
    if (t !== null) {
      this.line.setAttribute('x1', this.x(t));
      this.line.setAttribute('x2', this.x(t));
    }
  }
}

// ceiling is the number at the top of the axis: an even one a little above the most, and
// all slots when most of them are in use.
function ceiling(most, total) {
  if (total > 0 && most > total * 0.6 && total >= most) return total % 2 && total > 20 ? total + 1 : total;
  const unit = 10 ** Math.floor(Math.log10(most));
  for (const times of [1, 2, 4, 6, 8, 10, 20]) if (most * 1.1 <= unit * times) return Math.max(2, unit * times);
  return most;
}

const round = (n) => Math.round(n * 10) / 10;

// edge is a line of steps: each point holds until the next.
function edge(points, x, y, right) {
  let d = '';
  points.forEach((p, i) => { d += i === 0 ? `M${round(x(p))} ${round(y(p))}` : `H${round(x(p))}V${round(y(p))}`; });
  return d + `H${right}`;
}

// area is what is between two such lines.
function area(points, x, low, high, right) {
  let back = '';
  for (let i = points.length - 1; i >= 0; i--) {
    const p = points[i];
    back += `V${round(low(p))}H${round(x(p))}`;
  }
  return edge(points, x, high, right) + back + 'Z';
}
