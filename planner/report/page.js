"use strict";
// Two things that plain HTML cannot do: show one chart of several, and read values off a chart.
(() => {
  const GAP_PX = 12; // between the cursor and its box
  const PAGES = 20; // of Page Up or Page Down across a chart
  const NOTHING = "\u2013";

  function element(parent, name, words) {
    const made = parent.appendChild(document.createElement("div"));
    made.className = name;
    if (words !== undefined) made.textContent = words;
    return made;
  }

  // Pickers: without this script all charts are shown, one below the other.
  function startPicker(picker) {
    const select = picker.querySelector("select");
    const options = picker.querySelectorAll(".option");
    const show = () => options.forEach((option, i) => { option.hidden = i !== select.selectedIndex; });
    select.addEventListener("change", show);
    picker.querySelector(".control").hidden = false;
    show();
  }

  function number(value) {
    const size = Math.abs(value);
    const rule = size === 0 || size >= 1000 ? { maximumFractionDigits: 0 }
      : size < 1 ? { maximumSignificantDigits: 3 }
      : { maximumFractionDigits: size >= 100 ? 1 : size >= 10 ? 2 : 3 };
    return (value + 0).toLocaleString("en", rule).replace("-", "\u2212");
  }

  function withUnit(value, unit) {
    if (value === null) return NOTHING;
    if (unit.startsWith("$")) return number(value).replace(/^(\u2212?)/, "$1$$") + unit.slice(1);
    return unit ? number(value) + "\u00a0" + unit : number(value);
  }

  // The index of the last x at or before a place, -1 before the first.
  function lastAt(x, place) {
    let low = 0, high = x.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (x[middle] <= place) low = middle + 1; else high = middle;
    }
    return low - 1;
  }

  function nearestTo(x, place) {
    const i = Math.max(0, lastAt(x, place));
    return i + 1 < x.length && x[i + 1] - place < place - x[i] ? i + 1 : i;
  }

  // Where a value of x is across the picture, and back, as a fraction of its width.
  function across(readout, x) {
    const f = readout.log ? Math.log : (v) => v;
    const [a, b] = readout.limits.map(f);
    return readout.box[0] + (readout.box[2] - readout.box[0]) * (f(x) - a) / (b - a);
  }

  function xAt(readout, fraction) {
    const f = readout.log ? Math.log : (v) => v;
    const [a, b] = readout.limits.map(f);
    const v = a + (b - a) * (fraction - readout.box[0]) / (readout.box[2] - readout.box[0]);
    return readout.log ? Math.exp(v) : v;
  }

  // The x that is read for a place: between points only where every value holds to the next.
  function settle(readout, place) {
    const held = Math.min(Math.max(place, readout.x[0]), readout.x[readout.x.length - 1]);
    return readout.series.every((s) => s.steps) ? held : readout.stops[nearestTo(readout.stops, held)];
  }

  function valuesAt(readout, x) {
    const last = lastAt(readout.x, x), nearest = nearestTo(readout.x, x);
    return readout.series.map((s) => {
      const i = s.steps ? last : nearest;
      return [s.name, withUnit(i < 0 ? null : s.values[i], s.unit)];
    });
  }

  function startReadouts(data) {
    const picture = data.parentElement, scroll = picture.parentElement;
    const title = picture.querySelector("svg").getAttribute("aria-label");
    const all = JSON.parse(data.textContent).map((readout) => ({
      ...readout,
      // what the arrow keys step through: each x once, where the chart shows it
      stops: readout.x.filter((x, i, xs) => x !== xs[i + 1]
        && x >= Math.min(...readout.limits) && x <= Math.max(...readout.limits)),
    })).filter((readout) => readout.stops.length);
    if (!all.length) return;
    let current = all[0], x = null;
    const slider = element(picture, "slider");
    const cursor = element(picture, "cursor"), box = element(picture, "values");
    slider.tabIndex = 0;
    slider.setAttribute("role", "slider");
    box.setAttribute("aria-hidden", "true"); // the slider says the same
    hide();

    function hide() {
      cursor.hidden = box.hidden = true;
      x = null;
      describe([]);
    }

    function describe(rows) {
      const { label, stops } = current;
      slider.setAttribute("aria-label", `${title}: values by ${label}`);
      slider.setAttribute("aria-valuemin", stops[0]);
      slider.setAttribute("aria-valuemax", stops[stops.length - 1]);
      slider.setAttribute("aria-valuenow", x === null ? stops[0] : x);
      const words = rows.map(([name, value]) => `${name} ${value}`).join(", ");
      slider.setAttribute("aria-valuetext", words || "no place chosen");
    }

    function show(readout, place) {
      current = readout;
      x = settle(readout, place);
      // axes that share a place, as those of two y axes do, are read together
      const same = all.filter((other) => other.box.join() === readout.box.join()
        && other.limits.join() === readout.limits.join());
      const rows = [[readout.label, withUnit(x, readout.unit)],
        ...same.flatMap((other) => valuesAt(other, x))];
      box.replaceChildren();
      for (const [name, value] of rows) {
        const row = element(box, "row");
        row.append(Object.assign(document.createElement("span"), { textContent: name }),
          Object.assign(document.createElement("span"), { textContent: value }));
      }
      cursor.hidden = box.hidden = false;
      const { width, height } = picture.getBoundingClientRect();
      const left = across(readout, x) * width;
      const from = scroll.scrollLeft, to = from + scroll.clientWidth;
      const right = left + GAP_PX + box.offsetWidth;
      const beside = right <= Math.min(to, width) ? left + GAP_PX : left - GAP_PX - box.offsetWidth;
      Object.assign(cursor.style, { left: `${left}px`, top: `${readout.box[1] * height}px`,
        height: `${(readout.box[3] - readout.box[1]) * height}px` });
      const top = Math.min(readout.box[1] * height + 4, height - box.offsetHeight);
      Object.assign(box.style, { left: `${Math.max(from, beside)}px`, top: `${Math.max(0, top)}px` });
      describe(rows);
    }

    function point(event) {
      const { left, top, width, height } = picture.getBoundingClientRect();
      const right = (event.clientX - left) / width, down = (event.clientY - top) / height;
      const under = all.find(({ box: [l, t, r, b] }) =>
        right >= l && right <= r && down >= t && down <= b);
      if (under) show(under, xAt(under, right)); else hide();
    }

    function key(event) {
      if (event.altKey || event.ctrlKey || event.metaKey) return;
      const { stops } = current;
      const page = Math.max(1, Math.round(stops.length / PAGES)), end = stops.length - 1;
      const at = x === null ? -1 : lastAt(stops, x);
      // from between two points, back goes to the one before, not past it
      const back = x === null ? end : stops[at] < x ? at : at - 1;
      const to = { ArrowRight: at + 1, ArrowLeft: back, PageUp: at + page, PageDown: back + 1 - page,
        Home: 0, End: end }[event.key];
      const turn = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (event.key === "Escape") hide();
      else if (to !== undefined) show(current, stops[Math.min(Math.max(to, 0), end)]);
      else if (turn && all.length > 1) {
        const next = all[(all.indexOf(current) + turn + all.length) % all.length];
        show(next, x === null ? next.stops[0] : x);
      } else return;
      event.preventDefault();
      if (x === null) return;
      const left = across(current, x) * picture.clientWidth, half = scroll.clientWidth / 2;
      if (Math.abs(left - scroll.scrollLeft - half) > half) scroll.scrollLeft = left - half;
    }

    picture.addEventListener("pointerdown", point);
    picture.addEventListener("pointermove", point);
    picture.addEventListener("pointerleave", (event) => {
      if (event.pointerType !== "touch") hide(); // a finger leaves as soon as it is lifted
    });
    document.addEventListener("pointerdown", (event) => {
      if (!picture.contains(event.target)) hide();
    });
    slider.addEventListener("keydown", key);
    slider.addEventListener("blur", hide);
  }

  const opened = []; // for print, which shows what is folded, too
  window.addEventListener("beforeprint", () => {
    for (const details of document.querySelectorAll("details:not([open])")) {
      details.open = true;
      opened.push(details);
    }
  });
  window.addEventListener("afterprint", () => {
    for (const details of opened.splice(0)) details.open = false;
  });

  document.documentElement.classList.add("scripted");
  document.querySelectorAll(".hint").forEach((hint) => { hint.hidden = false; });
  document.querySelectorAll(".picker").forEach(startPicker);
  document.querySelectorAll("script.readouts").forEach(startReadouts);
})();
