export default function (component) {
  const { parentElement, data, setStateValue } = component;
  const area = parentElement.querySelector("textarea");
  const fit = () => { area.rows = Math.min(Math.max(area.value.split("\n").length + 1, 4), 16); };
  // What was typed last is sent whatever happens to the page meanwhile, so the timer outlives a new drawing of it.
  area.send = () => setStateValue("typed", { text: area.value, edition: Number(area.dataset.edition) });
  area.rest = () => { setStateValue("rest", Date.now()); area.dataset.rests = "yes"; };
  if (area.dataset.edition !== String(data.edition)) {
    area.dataset.edition = data.edition;
    if (area.dataset.rests === "no") {
      // A change in another tab does not replace what is being typed here.
      area.send();
    } else {
      area.value = data.text;
      fit();
    }
  }
  area.oninput = () => {
    fit();
    area.dataset.rests = "no";
    [area.timer, area.resting].forEach(clearTimeout);
    // Milliseconds after the last key: so that a fast typist is not answered letter by letter, and before the steps
    // below follow.
    area.timer = setTimeout(() => area.send(), 25);
    area.resting = setTimeout(() => area.rest(), 600);
  };
}
