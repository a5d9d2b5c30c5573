// Line icons on a 24-unit grid. Decorative: the control around one has the label.

const PATHS = {
  plus: 'M12 5v14M5 12h14',
  search: 'M11 18a7 7 0 1 1 0-14 7 7 0 0 1 0 14ZM20 20l-4-4',
  send: 'M12 19V5M6 11l6-6 6 6',
  stop: 'M7 7h10v10H7z',
  copy: 'M9 9h10v10H9zM5 15V5h10',
  check: 'M5 12.5l4.5 4.5L19 7.5',
  edit: 'M4 20h4L19 9l-4-4L4 16v4ZM13.5 6.5l4 4',
  again: 'M19 12a7 7 0 1 1-2.2-5.1M19 4v4h-4',
  left: 'M14.5 6l-6 6 6 6',
  right: 'M9.5 6l6 6-6 6',
  down: 'M6 9.5l6 6 6-6',
  close: 'M6 6l12 12M18 6L6 18',
  menu: 'M4 7h16M4 12h16M4 17h16',
  settings: 'M4 8h10M18 8h2M4 16h2M10 16h10M16 6v4M8 14v4',
  dots: 'M6 12h.01M12 12h.01M18 12h.01',
  trash: 'M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13',
  save: 'M12 4v11M7 10.5l5 5 5-5M5 20h14',
  open: 'M12 16V4M7 8.5l5-5 5 5M5 20h14',
  sun: 'M12 16a4 4 0 1 0 0-8 4 4 0 0 0 0 8ZM12 2.5v2M12 19.5v2M2.5 12h2M19.5 12h2M5.3 5.3l1.4 1.4M17.3 17.3l1.4 1.4M5.3 18.7l1.4-1.4M17.3 6.7l1.4-1.4',
  moon: 'M20 14.5A8 8 0 1 1 9.5 4a6.5 6.5 0 0 0 10.5 10.5Z',
  auto: 'M12 20a8 8 0 1 0 0-16 8 8 0 0 0 0 16ZM12 4v16M12 8h6.9M12 12h8M12 16h6.9',
  chat: 'M5 5h14v11H10l-5 4V5Z',
  grid: 'M5 5h6v6H5zM13 5h6v6h-6zM5 13h6v6H5zM13 13h6v6h-6z',
  columns: 'M4 5h16v14H4zM13 5v14',
  server: 'M5 5h14v6H5zM5 13h14v6H5zM8.5 8h.01M8.5 16h.01',
  tab: 'M4 6h16v13H4zM4 10h16M7 8h.01',
  think: 'M9.5 20h5M10 17h4M12 4a6 6 0 0 0-3.5 10.9V17h7v-2.1A6 6 0 0 0 12 4Z',
  alert: 'M12 4L2.8 20h18.4L12 4ZM12 10.5v4M12 17.5h.01',
  attach:
    'M19 11.5l-7.6 7.6a4.6 4.6 0 0 1-6.5-6.5l7.9-7.9a3.1 3.1 0 0 1 4.4 4.4l-7.9 7.9a1.5 1.5 0 0 1-2.2-2.2l7.2-7.2',
  file: 'M7 4h7l4 4v12H7zM14 4v4h4',
  pin: 'M9 4h6l-1 6 3 3H7l3-3-1-6ZM12 13v7',
  more: 'M5 12h11M12 7l5 5-5 5M20 6v12',
  keyboard: 'M3 7h18v10H3zM7 10.5h.01M11 10.5h.01M15 10.5h.01M8 14h8',
} as const

export type IconName = keyof typeof PATHS

export function Icon({ name, size = 18 }: { name: IconName; size?: number }) {
  return (
    <svg
      class={`icon icon-${name}`}
      width={size}
      height={size}
      viewBox="0 0 24 24"
      aria-hidden="true"
      focusable="false"
    >
      <path d={PATHS[name]} />
    </svg>
  )
}

/** The mark of the product: a grid of experts, one of them glowing. */
export function Logo({ size = 26 }: { size?: number }) {
  const cells = [0, 1, 0, 1, 0, 2, 0, 1, 0]
  return (
    <svg class="logo" width={size} height={size} viewBox="0 0 64 64" aria-hidden="true" focusable="false">
      <rect class="logo-ground" width="64" height="64" rx="15" />
      {cells.map((kind, i) => (
        <rect
          key={`${i}`}
          class={`logo-cell-${kind}`}
          x={13 + (i % 3) * 14}
          y={13 + Math.floor(i / 3) * 14}
          width="10"
          height="10"
          rx="2.5"
        />
      ))}
    </svg>
  )
}
