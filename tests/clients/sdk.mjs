#!/usr/bin/env node
// Runs the relay (argv: its command) with the official TypeScript SDK 1.32,
// which also checks failures against the output schema, as others don't.

import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { args, command, run } from './checks.mjs';

const client = new Client({ name: 'matrix', version: '1' });
await run('typescript sdk 1.32', client, new StdioClientTransport({ command, args }));
