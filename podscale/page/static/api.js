// Questions to the server that this page came from.

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

const PATIENCE_MS = 10_000; // a process that hangs answers nobody

export async function ask(what, query = {}, signal = undefined) {
  const given = Object.entries(query).filter(([, value]) => value !== "" && value !== undefined);
  const waiting = AbortSignal.timeout(PATIENCE_MS);
  const until = signal ? AbortSignal.any([signal, waiting]) : waiting;
  const answer = await fetch(`api/${what}?${new URLSearchParams(given)}`, { signal: until });
  const body = await answer.json();
  if (!answer.ok) throw new Refused(answer.status, body.message || answer.statusText);
  return body;
}
