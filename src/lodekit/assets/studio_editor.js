export default function (component) {
  const { parentElement, data, setStateValue } = component;
  const area = parentElement.querySelector("textarea");
  const fit = () => { area.rows = Math.min(Math.max(area.value.split("\n").length + 1, 4), 16); };
  if (area.dataset.begun !== "yes") {
    area.dataset.begun = "yes";
    area.value = data.text;
    fit();
  }
  // What was typed last is sent whatever happens to the page meanwhile, so the timer outlives a new drawing of it.
  area.send = () => setStateValue("text", area.value);
  area.rest = () => { setStateValue("rest", Date.now()); area.dataset.rests = "yes"; };
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
