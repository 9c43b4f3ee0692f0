"use strict";
// What the pages of servers share. A page has #form with the button #run, #error, #model and #results.
const find = id => document.getElementById(id);
const make = (name, properties = {}, ...children) => {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children);
  return element;
};
const count = n => n.toLocaleString("en");
const fail = error => { find("error").textContent = error.message; };

async function ask(path, body) {
  let answer, value;
  try {
    answer = await fetch(path, body && {method: "POST", headers: {"Content-Type": "application/json"},
                                        body: JSON.stringify(body)});
    value = await answer.json();
  } catch {
    throw new Error("The server does not answer.");
  }
  if (!answer.ok) throw new Error(value.error);
  return value;
}

// Does `work` while the button is disabled, and shows what goes wrong.
async function busy(work) {
  find("run").disabled = true;
  find("error").textContent = "";
  await work().catch(fail);
  find("run").disabled = false;
}

// Makes the page's address a link to what was asked.
const link = (name, value) => history.replaceState(null, "", `#${name}=` + encodeURIComponent(value));

// Shows what the server says of itself, has the form run, and runs what a link holds for the field `name`.
function start(name, run, describe) {
  find("form").addEventListener("submit", event => { event.preventDefault(); run(); });
  ask("/api/info").then(info => { find("model").textContent = describe(info); }).catch(fail);
  const linked = location.hash.match(new RegExp(`^#${name}=(.*)$`, "s"));
  if (!linked) return;
  try { find(name).value = decodeURIComponent(linked[1]); } catch {}
  run();
}
