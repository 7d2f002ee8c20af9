// An identity provider whose every user logs in with any password: node provider.js CONFIGURATION
//
// The configuration, a JSON file, has: issuer, port, state (a file that outlives restarts), keys
// (a JWKS file with private keys), clients, users (claims by subject), resource (the audience of
// access tokens), tokenDelay (milliseconds that a request for tokens takes at least) and the ways in
// which it imitates other providers: accessTokenTyp, endsSessions.

import { existsSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import process from 'node:process';

import Provider from 'oidc-provider';

const given = JSON.parse(readFileSync(process.argv[2], 'utf8'));
const CLAIMS = [...new Set(Object.values(given.users).flatMap(Object.keys)), 'sub'];

// What the provider remembers, in one file.
class Memory {
  static all = existsSync(given.state) ? JSON.parse(readFileSync(given.state, 'utf8')) : {};

  constructor(model) {
    this.model = model;
  }

  key(id) {
    return `${this.model}:${id}`;
  }

  save() {
    writeFileSync(`${given.state}.new`, JSON.stringify(Memory.all));
    renameSync(`${given.state}.new`, given.state);
  }

  async upsert(id, payload) {
    Memory.all[this.key(id)] = payload;
    this.save();
  }

  async find(id) {
    return Memory.all[this.key(id)];
  }

  async first(name, value) {
    const own = Object.entries(Memory.all).filter(([key]) => key.startsWith(`${this.model}:`));
    return own.map(([, payload]) => payload).find((payload) => payload[name] === value);
  }

  async findByUserCode(code) {
    return this.first('userCode', code);
  }

  async findByUid(uid) {
    return this.first('uid', uid);
  }

  async consume(id) {
    Memory.all[this.key(id)].consumed = Math.floor(Date.now() / 1000);
    this.save();
  }

  async destroy(id) {
    delete Memory.all[this.key(id)];
    this.save();
  }

  async revokeByGrantId(grant) {
    for (const [key, payload] of Object.entries(Memory.all)) {
      if (payload.grantId === grant) delete Memory.all[key];
    }
    this.save();
  }
}

const provider = new Provider(given.issuer, {
  adapter: Memory,
  clients: given.clients,
  jwks: JSON.parse(readFileSync(given.keys, 'utf8')),
  cookies: { keys: ['only for tests'] },
  claims: { openid: CLAIMS },
  scopes: ['openid', 'profile', 'email', 'offline_access'],
  conformIdTokenClaims: false,
  // Without the dispatcher that keeps it from calling servers of this machine: Rota is one.
  fetch: (url, { dispatcher, ...options }) => globalThis.fetch(url, options),
  rotateRefreshToken: true,
  issueRefreshToken: async (ctx, client) => client.grantTypeAllowed('refresh_token'),
  findAccount: async (ctx, sub) =>
    given.users[sub] && { accountId: sub, claims: async () => ({ sub, ...given.users[sub] }) },
  extraTokenClaims: async (ctx, token) => given.users[token.accountId],
  formats: {
    customizers: {
      jwt(ctx, token, jwt) {
        if (given.accessTokenTyp) {
          jwt.header = { ...jwt.header, typ: given.accessTokenTyp };
          jwt.payload.azp = jwt.payload.client_id;
        }
        return jwt;
      },
    },
  },
  features: {
    devInteractions: { enabled: true },
    backchannelLogout: { enabled: true },
    rpInitiatedLogout: { enabled: given.endsSessions },
    resourceIndicators: {
      enabled: true,
      defaultResource: () => given.resource,
      useGrantedResource: () => true,
      getResourceServerInfo: () => ({
        scope: 'openid profile email',
        audience: given.resource,
        accessTokenFormat: 'jwt',
        accessTokenTTL: 600,
      }),
    },
  },
  ttl: { AccessToken: 600, IdToken: 600, RefreshToken: 86400, Session: 86400, Grant: 86400 },
});

// Each request for tokens is a line of the log, and may be slow: others come meanwhile.
provider.use(async (ctx, next) => {
  if (ctx.path === '/token') await new Promise((go) => setTimeout(go, given.tokenDelay));
  await next();
});
for (const event of ['grant.success', 'grant.error']) {
  provider.on(event, (ctx) => console.log(`${event}: ${ctx.oidc.params.grant_type}`));
}
for (const event of ['server_error', 'grant.error', 'backchannel.error']) {
  provider.on(event, (ctx, error) => console.error(event, error));
}

createServer(provider.callback()).listen(given.port, '127.0.0.1');
