// The addresses at which a server can be opened: what it listens on may be no address, such as 0.0.0.0. Pure.
import type { NetworkInterfaceInfo } from 'node:os'

export type Interfaces = NodeJS.Dict<NetworkInterfaceInfo[]>

/** The address of this machine first, then those of its networks. */
export function listenAddresses(host: string, port: number, interfaces: Interfaces): string[] {
  const shown = (name: string) => `http://${name.includes(':') ? `[${name}]` : name}:${port}`
  const isAny = host === '0.0.0.0' || host === '::' || host === ''
  if (!isAny) return [shown(host)]
  const all = Object.values(interfaces).flatMap(addresses => addresses ?? [])
  // A page opens an address of version 4 as well where the server listens on all of version 6; link-local ones name no machine.
  const networks = all
    .filter(({ family, internal }) => family === 'IPv4' && !internal)
    .map(({ address }) => shown(address))
  return [shown('127.0.0.1'), ...networks]
}
