import type { ChildProcess } from 'node:child_process'

export interface Started {
  readonly port: number
  readonly url: string
  stop(): Promise<void>
}

export function missing(name: 'redis' | 'nginx' | 'haproxy'): string | null
export function freePort(): Promise<number>
export function startRedis(options?: {
  args?: readonly string[]
  port?: number
}): Promise<Started & { readonly child: ChildProcess }>
export function startS3(): Promise<Started & { readonly env: Record<string, string> }>
export function startNginx(ports: readonly number[]): Promise<Started>
export function startHaproxy(ports: readonly number[]): Promise<Started>
