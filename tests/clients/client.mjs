#!/usr/bin/env node
// Runs the relay (argv: its command) with the official TypeScript client 2.4
// in its modes legacy (its default) and auto.

import { Client } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { args, command, run } from './checks.mjs';

const versions = { legacy: '2025-11-25', auto: '2026-07-28' };

for (const [mode, version] of Object.entries(versions)) {
  const client = new Client({ name: 'matrix', version: '1' }, { versionNegotiation: { mode } });
  await run(`typescript client 2.4 (${mode})`, client, new StdioClientTransport({ command, args }), version);
}
