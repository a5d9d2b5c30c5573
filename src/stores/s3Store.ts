// A prefix store in any S3: AWS, MinIO, Ceph, R2. One object per name; how long they stay is a lifecycle rule of the bucket.
// Keys come from the environment, as with other tools: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION.
import { S3Client } from '../files/remote/s3Client.js'
import type { PrefixStore } from './prefixStore.js'

/** `s3://bucket/prefix?endpoint=https://…&region=…` */
export async function openS3Store(url: string): Promise<PrefixStore> {
  const client = await S3Client.open(url)
  return new S3Store(client)
}

class S3Store implements PrefixStore {
  readonly location: string

  constructor(private readonly client: S3Client) {
    this.location = client.location
  }

  async has(names: readonly string[], signal?: AbortSignal): Promise<boolean[]> {
    return await Promise.all(
      names.map(async name => (await this.client.request('HEAD', name, [200, 404], { signal })).status === 200),
    )
  }

  async get(names: readonly string[], signal?: AbortSignal): Promise<(Uint8Array | null)[]> {
    return await Promise.all(
      names.map(async name => {
        const response = await this.client.request('GET', name, [200, 404], { signal })
        if (response.status === 200) return new Uint8Array(await response.arrayBuffer())
        await response.body?.cancel()
        return null
      }),
    )
  }

  async put(name: string, bytes: Uint8Array, signal?: AbortSignal): Promise<void> {
    await this.client.request('PUT', name, [200], { signal, body: bytes as Uint8Array<ArrayBuffer> })
  }

  async remove(name: string, signal?: AbortSignal): Promise<void> {
    await this.client.request('DELETE', name, [200, 204, 404], { signal })
  }

  async close(): Promise<void> {}
}
