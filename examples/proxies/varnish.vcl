# For /etc/varnish/default.vcl.
vcl 4.1;

backend zbus {
    .host = "127.0.0.1";
    .port = "15555";
    .first_byte_timeout = 1h;      # long polls wait
    .between_bytes_timeout = 1h;   # and streams
}

sub vcl_recv {
    if (req.http.upgrade || req.http.accept ~ "text/event-stream") {
        return (pipe);             # WebSockets, and events: Varnish holds back the first otherwise
    }
    return (pass);                 # nothing is kept, and no client waits for another's reply
}

sub vcl_pipe {
    set bereq.http.upgrade = req.http.upgrade;
    set bereq.http.connection = req.http.connection;
}
