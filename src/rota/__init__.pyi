from rota.sdk.app import App as App
from rota.sdk.cart_drafts import AsyncCartHandle as AsyncCartHandle
from rota.sdk.cart_drafts import CartDraft as CartDraft
from rota.sdk.cart_drafts import CartHandle as CartHandle
from rota.sdk.client import AsyncClient as AsyncClient
from rota.sdk.client import Client as Client
from rota.sdk.context import Cancelled as Cancelled
from rota.sdk.context import Context as Context
from rota.sdk.errors import CartFailed as CartFailed
from rota.sdk.errors import CartPaused as CartPaused
from rota.sdk.errors import Conflict as Conflict
from rota.sdk.errors import Denied as Denied
from rota.sdk.errors import Invalid as Invalid
from rota.sdk.errors import NotFound as NotFound
from rota.sdk.errors import NotRota as NotRota
from rota.sdk.errors import RotaApiError as RotaApiError
from rota.sdk.errors import RunNotCompleted as RunNotCompleted
from rota.sdk.errors import Unavailable as Unavailable
from rota.sdk.errors import Unreachable as Unreachable
from rota.sdk.executors import NotSubmitted as NotSubmitted
from rota.sdk.executors import RemoteRun as RemoteRun
from rota.sdk.executors import Status as Status
from rota.sdk.external import AsyncExternalRun as AsyncExternalRun
from rota.sdk.external import ExternalRun as ExternalRun
from rota.sdk.functions import DefinedJob as DefinedJob
from rota.sdk.functions import JobFunction as JobFunction
from rota.sdk.options import Retry as Retry
from rota.sdk.options import cron as cron
from rota.sdk.options import every as every
from rota.sdk.runs import AsyncRunHandle as AsyncRunHandle
from rota.sdk.runs import RunHandle as RunHandle
from rota.sdk.runs import RunResult as RunResult

__all__: list[str]
__version__: str
