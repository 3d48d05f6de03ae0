// Where each device of the grid is, whether it is drawn or not. Nothing here touches the
// document: of 5,000 devices only those on the screen are made.

// Above so many devices they are drawn smaller.
export const compactAbove = 400;

const sizes = {
  roomy: { card: 94, gap: 10, width: 236, head: 40, space: 8 },
  tall: { card: 110, gap: 10, width: 236, head: 40, space: 8 }, // slots in two rows or more
  compact: { card: 46, gap: 6, width: 196, head: 38, space: 8 },
};

// place puts groups of devices into rows of a given width, in pixels.
export function place({ groups, count }, width) {
  const compact = count > compactAbove;
  const tall = groups.some((g) => g.devices.some((d) => ['medium', 'small'].includes(drawn(d.capacity))));
  const size = compact ? sizes.compact : tall ? sizes.tall : sizes.roomy;
  const columns = Math.max(1, Math.floor((width + size.gap) / (size.width + size.gap)));
  const rows = [];
  let top = 0;
  let first = 0;
  for (const group of groups) {
    rows.push({ group, top, height: size.head });
    top += size.head;
    for (let at = 0; at < group.devices.length; at += columns) {
      const devices = group.devices.slice(at, at + columns);
      rows.push({ devices, first, top, height: size.card });
      first += devices.length;
      top += size.card + size.gap;
    }
    top += size.space;
  }
  return { rows, columns, compact, count, height: top };
}

// between returns the first and the end of the rows that are at least partly between two
// heights.
export function between(layout, from, to) {
  const rows = layout.rows;
  let low = 0;
  let high = rows.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (rows[middle].top + rows[middle].height < from) low = middle + 1;
    else high = middle;
  }
  let end = low;
  while (end < rows.length && rows[end].top <= to) end++;
  return [low, end];
}

// find returns where a device is: its row, and its place there.
export function find(layout, name) {
  for (let row = 0; row < layout.rows.length; row++) {
    const column = (layout.rows[row].devices || []).findIndex((d) => d.name === name);
    if (column >= 0) return { row, column };
  }
  return null;
}

// drawn is how a device's slots are drawn: one by one in one of three sizes, or as a bar.
export function drawn(capacity, compact) {
  if (compact) return capacity <= 13 ? 'small' : 'bar';
  if (capacity <= 8) return 'large';
  if (capacity <= 24) return 'medium';
  return capacity <= 64 ? 'small' : 'bar';
}

// step moves the focus: an item is a device and the index of a slot, -1 for the device
// itself. It returns the item that the key leads to, or null.
export function step(layout, name, slot, key, slots) {
  const here = find(layout, name);
  if (!here) return null;
  const { row, column } = here;
  const device = (r, c) => layout.rows[r]?.devices?.[c];
  const current = device(row, column);
  const vertical = (by, times = 1) => {
    let found = null;
    for (let r = row + by; r >= 0 && r < layout.rows.length && times > 0; r += by) {
      const devices = layout.rows[r].devices;
      if (!devices) continue;
      found = devices[Math.min(column, devices.length - 1)];
      times--;
    }
    return found && { name: found.name, slot: Math.min(slot, slots(found) - 1) };
  };
  const horizontal = (by) => {
    let r = row;
    let c = column + by;
    while (r >= 0 && r < layout.rows.length) {
      const next = device(r, c);
      if (next) return next;
      r += by;
      c = by > 0 ? 0 : (layout.rows[r]?.devices?.length || 0) - 1;
    }
    return null;
  };
  switch (key) {
    case 'ArrowRight': {
      if (slot + 1 < slots(current)) return { name, slot: slot + 1 };
      const next = horizontal(1);
      return next && { name: next.name, slot: -1 };
    }
    case 'ArrowLeft': {
      if (slot >= 0) return { name, slot: slot - 1 };
      const next = horizontal(-1);
      return next && { name: next.name, slot: slots(next) - 1 };
    }
    case 'ArrowDown': return vertical(1);
    case 'ArrowUp': return vertical(-1);
    case 'PageDown': return vertical(1, 5);
    case 'PageUp': return vertical(-1, 5);
    case 'Home': {
      const first = layout.rows.find((r) => r.devices);
      return first && { name: first.devices[0].name, slot: -1 };
    }
    case 'End': {
      const last = layout.rows.findLast((r) => r.devices);
      return last && { name: last.devices[last.devices.length - 1].name, slot: -1 };
    }
  }
  return null;
}
