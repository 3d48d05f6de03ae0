// Dark or light: as the system has it, unless the user chooses.

import { svg } from './dom.js';

const choices = ['system', 'light', 'dark'];
const pictures = {
  system: () => [svg('circle', { cx: 12, cy: 12, r: 8, fill: 'none', stroke: 'currentColor', 'stroke-width': 2 }), svg('path', { d: 'M12 4a8 8 0 0 1 0 16z', fill: 'currentColor' })],
  light: () => [svg('circle', { cx: 12, cy: 12, r: 4, fill: 'currentColor' }), svg('path', { d: 'M12 2v3M12 19v3M2 12h3M19 12h3M4.9 4.9l2.1 2.1M17 17l2.1 2.1M4.9 19.1 7 17M17 7l2.1-2.1', stroke: 'currentColor', 'stroke-width': 2, 'stroke-linecap': 'round' })],
  dark: () => [svg('path', { d: 'M20 14.5A8.5 8.5 0 0 1 9.5 4a8.5 8.5 0 1 0 10.5 10.5z', fill: 'currentColor' })],
};

// themeButton makes a button of the element that goes through the choices.
export function themeButton(button) {
  let choice = stored();
  const show = () => {
    if (choice === 'system') delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = choice;
    button.replaceChildren(svg('svg', { viewBox: '0 0 24 24', width: 18, height: 18, 'aria-hidden': 'true' }, pictures[choice]()));
    button.setAttribute('aria-label', `Colours: ${choice === 'system' ? 'as the system' : choice}`);
    button.title = button.getAttribute('aria-label');
  };
  button.addEventListener('click', () => {
    choice = choices[(choices.indexOf(choice) + 1) % choices.length];
    try { localStorage.setItem('theme', choice); } catch { /* it lasts until the page is closed */ }
    show();
  });
  show();
}

function stored() {
  try {
    const theme = localStorage.getItem('theme');
    return choices.includes(theme) ? theme : 'system';
  } catch {
    return 'system';
  }
}
