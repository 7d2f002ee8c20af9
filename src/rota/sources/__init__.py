"""Program that brings the source of an attempt into its folder, and runs where the job does.

They are executed behind the wall of the job, where nothing is installed but Python itself: so they
import the standard library, the few modules of `rota.domain` that `packed.py` packs with them, and
nothing else.
"""
