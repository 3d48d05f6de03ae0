// The connection to the server.

// silence is how long the server may say nothing, in milliseconds: it sends something
// each 10 s.
const silence = 25e3;

// connect calls on.about with what the page shows and to whom, on.update with each update,
// and on.state with whether updates come:
// "live", "connecting" or "refused", when the session is over.
export function connect(on) {
  let source;
  let watchdog;
  const heard = () => {
    clearTimeout(watchdog);
    watchdog = setTimeout(again, silence);
  };
  const again = () => {
    source?.close();
    clearTimeout(watchdog);
    on.state('connecting');
    setTimeout(open, 2000);
  };
  const open = () => {
    source = new EventSource('/api/updates');
    heard();
    source.onmessage = (e) => {
      heard();
      on.state('live');
      on.update(JSON.parse(e.data));
    };
    source.addEventListener('about', (e) => on.about(JSON.parse(e.data)));
    source.addEventListener('alive', heard);
    source.onerror = async () => {
      on.state('connecting');
      if (source.readyState !== EventSource.CLOSED) return; // it tries again by itself
      clearTimeout(watchdog);
      const response = await fetch('/api/alive').catch(() => null);
      if (response?.status === 401) on.state('refused');
      else again();
    };
  };
  open();
}
