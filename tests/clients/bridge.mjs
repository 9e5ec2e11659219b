#!/usr/bin/env node
// Serves the relay (argv: its command) as Streamable HTTP on 127.0.0.1, for the conformance
// suite, which speaks nothing else. Prints its URL. A legacy session has a relay of its own;
// the requests of revision 2026-07-28 share one, with ids of the bridge's own.

import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { createInterface } from 'node:readline';

const [command, ...args] = process.argv.slice(2);
const prefix = 'io.modelcontextprotocol/';
const named = { 'tools/call': 'name', 'prompts/get': 'name', 'resources/read': 'uri' };
const statuses = { [-32601]: 404, [-32602]: 400, [-32020]: 400, [-32021]: 400, [-32022]: 400 };
const sessions = new Map();
const relays = new Set();

function answer(response, status, body, headers = {}) {
  if (body) headers['Content-Type'] = 'application/json';
  response.writeHead(status, headers).end(body && JSON.stringify(body));
}

function refuse(response, status, code, message, id = null) {
  answer(response, status, { jsonrpc: '2.0', id, error: { code, message } });
}

function stream(response, message) {
  if (!response.headersSent) response.writeHead(200, { 'Content-Type': 'text/event-stream' });
  if (message) response.write(`event: message\ndata: ${JSON.stringify(message)}\n\n`);
}

// One process of the relay; waiting has what is to be answered: [response, id, HTTP headers].
class Relay {
  waiting = new Map();
  count = 0;

  constructor(modern) {
    this.modern = modern;
    this.child = spawn(command, args, { stdio: ['pipe', 'pipe', 'inherit'] });
    this.child.on('error', (error) => console.error(`bridge: ${error.message}`));
    this.child.stdin.on('error', () => {});
    this.child.on('close', () => {
      this.closed = true;
      relays.delete(this);
      this.events?.end();
      for (const [response, id] of this.waiting.values()) refuse(response, 502, -32603, 'the relay ended', id);
    });
    createInterface({ input: this.child.stdout }).on('line', (line) => this.receive(JSON.parse(line)));
    relays.add(this);
  }

  send(message) {
    this.child.stdin.write(`${JSON.stringify(message)}\n`);
  }

  ask(message, response, headers) {
    const key = this.modern ? ++this.count : message.id;
    this.waiting.set(key, [response, message.id, headers]);
    response.on('close', () => {
      const open = this.waiting.delete(key);
      if (open && this.modern) {
        this.send({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: key } });
      }
    });
    this.send({ ...message, id: key });
  }

  receive(message) {
    if (message.method) {
      const meta = message.params?._meta;
      const [response, id] = this.waiting.get(meta?.[`${prefix}subscriptionId`]) ?? [this.events];
      if (id !== undefined) meta[`${prefix}subscriptionId`] = id;
      if (response) stream(response, message);
      return;
    }
    const [response, id, headers] = this.waiting.get(message.id) ?? [];
    if (!response) return;
    this.waiting.delete(message.id);
    message.id = id;
    const meta = message.result?._meta;
    if (meta?.[`${prefix}subscriptionId`] !== undefined) meta[`${prefix}subscriptionId`] = id;
    if (response.headersSent) {
      stream(response, message);
      response.end();
    } else {
      answer(response, (this.modern && statuses[message.error?.code]) || 200, message, headers);
    }
  }
}

// Which header contradicts the message, or lacks, in revision 2026-07-28.
function mismatch(headers, { method, params }) {
  const wanted = {
    'mcp-protocol-version': params?._meta?.[`${prefix}protocolVersion`],
    'mcp-method': method,
    'mcp-name': params?.[named[method]],
  };
  const plain = (value) =>
    value?.replace(/^=\?base64\?(.*)\?=$/, (_, text) => Buffer.from(text, 'base64').toString());
  return Object.keys(wanted).find((key) => wanted[key] !== undefined && plain(headers[key]) !== wanted[key]);
}

let shared;

function post(message, { headers }, response) {
  const { id, method, params } = message;
  let relay = sessions.get(headers['mcp-session-id']);
  let added = {};
  if (headers['mcp-session-id']) {
    if (!relay || relay.closed) return refuse(response, 404, -32001, 'no such session', id);
  } else if (headers['mcp-protocol-version'] >= '2026' || params?._meta?.[`${prefix}protocolVersion`]) {
    const header = mismatch(headers, message);
    if (header) return refuse(response, 400, -32020, `${header} is not as in the body`, id);
    if (!shared || shared.closed) shared = new Relay(true);
    relay = shared;
  } else if (method === 'initialize') {
    relay = new Relay(false);
    added = { 'Mcp-Session-Id': randomUUID() };
    sessions.set(added['Mcp-Session-Id'], relay);
  } else {
    return refuse(response, 400, -32600, 'neither a session nor revision 2026-07-28', id);
  }
  if (method && id !== undefined) return relay.ask(message, response, added);
  relay.send(message);
  return answer(response, 202);
}

const server = createServer(async (request, response) => {
  const { headers, method } = request;
  const hosts = ['127.0.0.1', 'localhost'].map((name) => `${name}:${server.address().port}`);
  if (!hosts.includes(headers.host) || (headers.origin && !hosts.includes(headers.origin.replace('http://', '')))) {
    return refuse(response, 403, -32600, 'foreign Host or Origin');
  }
  if (request.url !== '/mcp') return answer(response, 404);
  if (method === 'POST') {
    try {
      post(JSON.parse(Buffer.concat(await request.toArray())), request, response);
    } catch (error) {
      refuse(response, 400, -32700, error.message);
    }
    return;
  }
  const key = headers['mcp-session-id'];
  if (!key || !['GET', 'DELETE'].includes(method)) return answer(response, 405, undefined, { Allow: 'POST' });
  const relay = sessions.get(key);
  if (!relay || relay.closed) return answer(response, 404);
  if (method === 'DELETE') {
    sessions.delete(key);
    relay.child.kill();
    return answer(response, 204);
  }
  if (relay.events && !relay.events.closed) return answer(response, 409);
  relay.events = response;
  stream(response);
  response.flushHeaders();
});

for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP']) {
  process.on(signal, () => {
    for (const { child } of relays) child.kill();
    process.exit();
  });
}
server.listen(0, '127.0.0.1', () => console.log(`http://127.0.0.1:${server.address().port}/mcp`));
