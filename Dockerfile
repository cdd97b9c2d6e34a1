# One image for the dispatcher, the workers and Flower. A project that needs more than Python to run its verify builds
# its own image on top of this one.
FROM python:3.12-slim

# git for everything; util-linux for setpriv and unshare, which keep what an agent starts from outliving it.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends git util-linux \
    && rm -rf /var/lib/apt/lists/*

COPY . /src
RUN pip install --no-cache-dir /src && rm -rf /src

# The id of whoever owns the repository outside: the lock and the branches are written as this user.
ARG UID=1000
RUN useradd --uid "$UID" --create-home overnight \
    && install --directory --owner overnight --mode 0700 /overnight \
    && git config --system --add safe.directory /repository
USER overnight
ENV OVERNIGHT_HOME=/overnight
WORKDIR /repository
ENTRYPOINT ["overnight"]
CMD ["--help"]
