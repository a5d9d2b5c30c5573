// Why there is no answer, and what can be done about it. Nothing that was typed is lost: the message stays where it is.
import { useApp } from '../state/app.js'
import { branch, type Conversation, type Failure, type Message } from '../state/conversation.js'
import { Icon } from '../ui/icons.js'

interface Props {
  readonly conversation: Conversation
  readonly message: Message // the answer that failed
  readonly failure: Failure
}

export function FailureNotice({ conversation, message, failure }: Props) {
  const app = useApp()
  const again = async () => {
    if (failure.kind === 'unreachable') await app.engines.connect()
    if (message.parent) await app.answers.answer(conversation.id, message.parent)
  }
  const elsewhere = () => {
    const asked = branch(conversation, message.parent).at(-1)
    app.newChat()
    const { currentId, drafts } = app.conversations
    drafts.setText(currentId.value, asked?.text ?? '')
    drafts.setFiles(currentId.value, asked?.attachments ?? [])
    app.focusComposer.value++
  }
  const { kind } = failure
  const canRunHere =
    kind === 'unreachable' && app.engines.place.value === 'server' && app.engines.models.value.length > 0
  return (
    <div class="failure" role="alert">
      <Icon name="alert" />
      <div>
        <p>{failure.message}</p>
        <div class="row">
          {kind === 'unauthorized' && (
            <button type="button" class="button primary" onClick={() => (app.dialog.value = 'key')}>
              Enter the key
            </button>
          )}
          {kind === 'contextFull' && (
            <button type="button" class="button primary" onClick={elsewhere}>
              Ask in a new chat
            </button>
          )}
          <button type="button" class="button" onClick={again}>
            Try again
          </button>
          {canRunHere && (
            <button type="button" class="button" onClick={() => (app.dialog.value = 'model')}>
              Run in this tab
            </button>
          )}
        </div>
      </div>
    </div>
  )
}
