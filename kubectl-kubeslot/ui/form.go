package ui

import (
	"html/template"
	"net/http"
)

var formPage = template.Must(template.New("form").Parse(`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>Kubeslot: log in</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="/page/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="/page/theme.css">
<link rel="stylesheet" href="/page/style.css">
</head>
<body class="ready">
<main class="login">
<form class="card" method="post" action="/login">
<div class="brand"><img src="/page/icon.svg" alt="" width="26" height="26"><h1>Kubeslot{{with .Cluster}} · {{.}}{{end}}</h1></div>
{{with .Problem}}<p class="notice bad" role="alert">{{.}}</p>{{end}}
<p class="muted">You see what your token lets you see. It stays in this browser, and goes to the API server alone.</p>
<label>Token <input name="token" type="password" autocomplete="off" required autofocus></label>
<label>Namespace, if you may not see all <input name="namespace" autocomplete="off" spellcheck="false"></label>
<button class="primary" type="submit">Log in</button>
<p class="muted small">A token of a ServiceAccount: <code>kubectl create token NAME</code></p>
</form>
</main>
</body>
</html>
`))

// form answers with the form to log in, and why it is needed.
func (s *Sessions) form(w http.ResponseWriter, code int, problem string) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	_ = formPage.Execute(w, map[string]string{"Cluster": s.cluster, "Problem": problem})
}
