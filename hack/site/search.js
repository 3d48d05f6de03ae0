// Finds sections of the pages that have all the words. Their text is in sections.js, which is loaded when
// somebody begins to search.
const root = document.documentElement.dataset.root;
const field = document.getElementById('search');
const found = document.getElementById('found');
const most = 20;

let loading;
function load() {
  loading ??= new Promise((done, failed) => {
    const script = document.createElement('script');
    script.src = root + 'sections.js';
    script.onload = done;
    script.onerror = failed;
    document.head.append(script);
  });
  return loading;
}

// rank returns how well a section matches, 0 if it lacks a word.
function rank(section, words) {
  const [page, heading, text] = [section.page, section.heading, section.text].map(s => s.toLowerCase());
  let sum = heading === words.join(' ') ? 16 : 0;
  for (const word of words) {
    const points = (heading.includes(word) ? 8 : 0) + (page.includes(word) ? 4 : 0) + Math.min(text.split(word).length - 1, 4);
    if (points === 0) return 0;
    sum += points;
  }
  return sum;
}

// excerpt returns the text around the first word, in parts: each second one is a word.
function excerpt(text, words) {
  const any = new RegExp('(' + words.map(w => w.replace(/[.*+?^${}()|[\]\\/]/g, '\\$&')).join('|') + ')', 'gi');
  const from = Math.max(0, text.search(any) - 60);
  const cut = (from > 0 ? '… ' : '') + text.slice(from, from + 200) + (text.length > from + 200 ? ' …' : '');
  return cut.split(any);
}

function item(section, words) {
  const link = document.createElement('a');
  link.href = root + section.url;
  link.append(section.page === section.heading ? section.page : `${section.page} › ${section.heading}`);
  const shown = document.createElement('span');
  excerpt(section.text, words).forEach((part, i) => {
    const node = document.createElement(i % 2 ? 'mark' : 'span');
    node.textContent = part;
    shown.append(i % 2 ? node : part);
  });
  link.append(shown);
  const li = document.createElement('li');
  li.append(link);
  return li;
}

async function show() {
  await load();
  const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
  const best = sections.map(section => [rank(section, words), section]).filter(([points]) => points > 0).sort((a, b) => b[0] - a[0]);
  found.querySelector('ol').replaceChildren(...best.slice(0, most).map(([, section]) => item(section, words)));
  found.querySelector('p').textContent = best.length === 0 ? 'Nothing has all of these words.'
    : best.length > most ? `The first ${most} of ${best.length} sections` : `${best.length} section${best.length > 1 ? 's' : ''}`;
  found.hidden = words.length === 0;
}

field.hidden = false;
field.addEventListener('focus', load);
field.addEventListener('input', show);
document.addEventListener('click', event => {
  if (!event.target.closest('search') || event.target.closest('#found a')) found.hidden = true;
});
document.addEventListener('keydown', event => {
  const links = [field, ...found.querySelectorAll('a')];
  const at = links.indexOf(document.activeElement);
  if (event.key === '/' && !event.target.matches('input')) field.focus();
  else if (event.key === 'Escape' && at >= 0) { found.hidden = true; field.focus(); }
  else if (event.key === 'ArrowDown' && at >= 0) links[Math.min(at + 1, links.length - 1)].focus();
  else if (event.key === 'ArrowUp' && at > 0) links[at - 1].focus();
  else if (event.key === 'Enter' && at === 0 && links[1]) links[1].click();
  else return;
  event.preventDefault();
});
