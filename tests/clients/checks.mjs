// What client.mjs and sdk.mjs check of the relay (argv: its command), whichever client is connected.

import assert from 'node:assert/strict';
import { Ajv2020 } from 'ajv/dist/2020.js';

export const [command, ...args] = process.argv.slice(2);

const calls = [
  [
    { expression: '(+ 1 1)' },
    { isError: false, ok: true, value: '2', code: undefined, symbol: undefined },
  ],
  [
    { expression: '(car 1)' },
    { isError: true, ok: false, value: undefined, code: 'elisp_error', symbol: 'wrong-type-argument' },
  ],
  [
    { expression: '1', timeout_ms: 5 },
    { isError: true, ok: false, value: undefined, code: 'invalid_request', symbol: undefined },
  ],
];

let step;

async function check(client) {
  step = 'tools';
  const { tools } = await client.listTools();
  assert.deepEqual(tools.map((tool) => tool.name), ['emacs_eval']);
  step = 'root type of the output schema';
  const schema = tools[0].outputSchema;
  assert.equal(schema?.type, 'object');
  const validate = new Ajv2020({ strict: false, allErrors: true }).compile(schema);

  for (const [input, want] of calls) {
    const what = (step = JSON.stringify(input));
    const result = await client.callTool({ name: 'emacs_eval', arguments: input });
    const envelope = result.structuredContent;
    const got = {
      isError: result.isError ?? false,
      ok: envelope?.ok,
      value: envelope?.value,
      code: envelope?.error?.code,
      symbol: envelope?.error?.data?.symbol,
    };
    assert.deepEqual(got, want);
    step = `${what}: content`;
    assert.deepEqual(result.content.map((item) => item.type), ['text']);
    step = `${what}: text`;
    assert.deepEqual(JSON.parse(result.content[0].text), envelope);
    step = `${what}: against the output schema`;
    validate(envelope);
    assert.deepEqual((validate.errors ?? []).map((e) => `${e.instancePath}: ${e.message}`), []);
  }
}

// Runs one mode and prints its line; a failure shows what differs and makes the exit code 1.
export async function run(name, client, transport, version) {
  step = 'connect';
  let late = '';
  const stuck = setTimeout(() => {
    late = ' (after 60 s without an answer)';
    client.close();
  }, 60_000);
  try {
    await client.connect(transport, { timeout: 20_000 });
    step = 'protocol version';
    assert.equal(client.getNegotiatedProtocolVersion?.(), version);
    await check(client);
    console.log(`ok: ${name}`);
  } catch (error) {
    process.exitCode = 1;
    console.log(`FAILED: ${name}: ${step}: ${error.message}${late}`);
  }
  await client.close();
  clearTimeout(stuck);
}
