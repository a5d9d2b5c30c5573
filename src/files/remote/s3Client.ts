// Signed requests to one prefix of one bucket. Signing is aws4fetch's; retrying and patience are the caller's.
import type { AwsClient } from 'aws4fetch'
import { FetchError, OptionError } from '../../base/errors.js'
import { loadClient } from './loadClient.js'

export class S3Client {
  private constructor(
    private readonly client: AwsClient,
    readonly base: string, // ends with a slash
    readonly location: string,
  ) {}

  static async open(url: string, environment: NodeJS.ProcessEnv = process.env): Promise<S3Client> {
    const { base, region, location } = parseS3Url(url, environment)
    const { AwsClient } = await loadClient('aws4fetch', () => import('aws4fetch'))
    const { AWS_ACCESS_KEY_ID: accessKeyId, AWS_SECRET_ACCESS_KEY: secretAccessKey } = environment
    if (!accessKeyId || !secretAccessKey) {
      throw new OptionError('store', location, 'AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment')
    }
    const sessionToken = environment.AWS_SESSION_TOKEN || undefined
    const client = new AwsClient({ accessKeyId, secretAccessKey, sessionToken, service: 's3', region, retries: 0 })
    return new S3Client(client, base, location)
  }

  url(name: string): string {
    return this.base + name.split('/').map(encodeURIComponent).join('/')
  }

  /** A signed request to any URL of the bucket. */
  async fetch(url: string, init: RequestInit): Promise<Response> {
    const { method = 'GET', headers } = init
    const signed = await this.client.sign(url, { method, headers })
    return await fetch(url, { ...init, headers: signed.headers })
  }

  /** Throws for any other status than those. */
  async request(
    method: string,
    name: string,
    statuses: readonly number[],
    init: { signal?: AbortSignal; body?: Uint8Array<ArrayBuffer>; headers?: Record<string, string> } = {},
  ): Promise<Response> {
    const url = this.url(name)
    let response: Response
    try {
      response = await this.fetch(url, { method, ...init })
    } catch (cause) {
      init.signal?.throwIfAborted()
      throw new FetchError('UNREACHABLE', url, 'the server cannot be reached', { cause })
    }
    if (statuses.includes(response.status)) return response
    const text = method === 'HEAD' ? '' : (await response.text().catch(() => '')).slice(0, 2000)
    const detail = /<Code>([^<]*)<\/Code>/.exec(text)?.[1] ?? response.statusText
    throw new FetchError('HTTP_STATUS', url, `the server answered ${response.status} ${detail}`.trim(), {
      status: response.status,
    })
  }
}

interface S3Target {
  readonly base: string
  readonly region: string
  readonly location: string
}

/** With an endpoint the bucket is part of the path, as every S3 server understands it. */
export function parseS3Url(url: string, environment: NodeJS.ProcessEnv = {}): S3Target {
  const match = /^s3:\/\/([a-z0-9][a-z0-9._-]{1,62})(?:\/([^?]*))?(?:\?(.*))?$/.exec(url)
  if (match === null) throw new OptionError('store', url, 's3://bucket/prefix')
  const [, bucket, path = '', query = ''] = match
  const parameters = new URLSearchParams(query)
  const endpoint = parameters.get('endpoint') ?? environment.AWS_ENDPOINT_URL_S3 ?? environment.AWS_ENDPOINT_URL
  const region = parameters.get('region') ?? environment.AWS_REGION ?? environment.AWS_DEFAULT_REGION ?? 'us-east-1'
  const prefix = path.split('/').filter(Boolean).map(encodeURIComponent).join('/')
  const root = endpoint ? `${endpoint.replace(/\/+$/, '')}/${bucket}/` : `https://${bucket}.s3.${region}.amazonaws.com/`
  return {
    base: prefix === '' ? root : `${root}${prefix}/`,
    region,
    location: `s3://${bucket}${prefix && `/${prefix}`}`,
  }
}

/** For whoever gives an S3 URL where another is wanted. */
export function isS3Url(url: string): boolean {
  if (!url.startsWith('s3:')) return false
  if (!/^s3:\/\/[^/?]+/.test(url)) throw new OptionError('url', url, 's3://bucket/prefix')
  return true
}
