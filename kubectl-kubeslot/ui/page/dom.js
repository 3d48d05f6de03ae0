// Small helpers: elements, numbers and times. Text is always text: nothing here makes
// markup of what somebody wrote into an object.

const svgNamespace = 'http://www.w3.org/2000/svg';

// element makes an element. Properties that start with "on" are listeners, "data" and
// "style" are objects, null and false are left out.
export function element(name, properties = {}, ...children) {
  return fill(document.createElement(name), properties, children);
}

export function svg(name, properties = {}, ...children) {
  return fill(document.createElementNS(svgNamespace, name), properties, children);
}

function fill(to, properties, children) {
  for (const [key, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith('on')) to.addEventListener(key.slice(2), value);
    else if (key === 'data') Object.assign(to.dataset, value);
    else if (key === 'style') for (const [k, v] of Object.entries(value)) to.style.setProperty(k, v);
    else to.setAttribute(key, value === true ? '' : value);
  }
  to.append(...children.flat().filter((c) => c !== null && c !== undefined && c !== false && c !== ''));
  return to;
}

// middle shows a name that is cut in the middle where there is too little place for it: the ends of a
// path tell most.
export function middle(name) {
  const letters = [...name];
  const end = letters.length > 20 ? 10 : 0;
  return element('span', { class: 'middle' }, element('span', {}, letters.slice(0, letters.length - end).join('')), end > 0 && element('span', {}, letters.slice(-end).join('')));
}

export const byId = (id) => document.getElementById(id);

// setText changes the text of an element when it is another one.
export function setText(to, text) {
  if (to.textContent !== text) to.textContent = text;
}

const numbers = new Intl.NumberFormat('en');
export const number = (n) => numbers.format(n);
export const plural = (n, one, many = one + 's') => `${number(n)} ${n === 1 ? one : many}`;

// age is a time between two moments in milliseconds, as kubectl writes it.
export function age(milliseconds) {
  const s = Math.max(0, Math.floor(milliseconds / 1000));
  if (s < 120) return `${s}s`;
  const m = Math.floor(s / 60);
  if (m < 120) return m < 10 && s % 60 ? `${m}m${s % 60}s` : `${m}m`;
  const h = Math.floor(m / 60);
  if (h < 48) return h < 8 && m % 60 ? `${h}h${m % 60}m` : `${h}h`;
  return `${Math.floor(h / 24)}d`;
}

const clocks = { hourCycle: 'h23', hour: '2-digit', minute: '2-digit' };
export const clock = (at) => new Date(at).toLocaleTimeString('en', clocks);
export const clockSeconds = (at) => new Date(at).toLocaleTimeString('en', { ...clocks, second: '2-digit' });
export const when = (at) => new Date(at).toLocaleString(undefined, { dateStyle: 'medium', timeStyle: 'medium', hourCycle: 'h23' });
