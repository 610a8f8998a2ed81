"""The application that holds APScheduler's scheduler: it runs jobs, and adds those that it is told."""

from bench.peers.apps import apscheduler_app
from bench.peers.scheduling import serve

if __name__ == "__main__":
    apscheduler_app.scheduler.start()
    serve(apscheduler_app.schedule)
