// Questions to the server that this page came from.

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export async function ask(what, query = {}, signal = undefined) {
  const given = Object.entries(query).filter(([, value]) => value !== "" && value !== undefined);
  const answer = await fetch(`api/${what}?${new URLSearchParams(given)}`, { signal });
  const body = await answer.json();
  if (!answer.ok) throw new Refused(answer.status, body.message || answer.statusText);
  return body;
}
