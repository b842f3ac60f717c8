export default function ({ parentElement, data, setStateValue }) {
  const box = parentElement.querySelector(".lk-sliders");
  const number = value => Number(Number(value).toPrecision(6));
  box.send = () => { box.last = performance.now(); setStateValue("places", { ...box.values }); };
  box.rest = () => { box.moved = null; setStateValue("rest", Date.now()); };
  if (box.childElementCount !== data.items.length) {
    box.replaceChildren(...data.items.map(() => {
      const label = document.createElement("label");
      label.append(document.createElement("span"), document.createElement("output"), document.createElement("input"));
      label.lastChild.type = "range";
      return label;
    }));
    box.values = {};
    box.moved = null;
  }
  data.items.forEach((item, place) => {
    const [name, shown, input] = box.children[place].children;
    name.textContent = item.label;
    input.setAttribute("aria-label", item.label);
    // What the page says counts, unless somebody is moving it.
    if (box.moved !== item.name) {
      Object.assign(input, { min: item.low, max: item.high, step: item.step });
      input.value = item.value;
      box.values[item.name] = item.value;
      shown.textContent = number(item.value);
    }
    input.oninput = () => {
      shown.textContent = number(input.value);
      box.values[item.name] = Number(input.value);
      box.moved = item.name;
      [box.timer, box.resting].forEach(clearTimeout);
      // Milliseconds until a slider has come to rest, and between two values: not more than the page can answer.
      box.resting = setTimeout(() => box.rest(), 900);
      const wait = 50 - (performance.now() - (box.last ?? -1e9));
      if (wait <= 0) box.send(); else box.timer = setTimeout(() => box.send(), wait);
    };
  });
}
