"""Programs that `menagerie credentials` prints, by driver; `<name>` is filled in as a literal.

Where a host's name does not resolve, a driver gets the address and verifies the name. Those that
take only one of the two have a second text, for that case.
"""

from typing import Final

PSYCOPG: Final = """
import psycopg

with psycopg.connect(<libpq>) as connection:
    print(connection.execute("SELECT 42 AS answer").fetchone())
"""

ASYNCPG: Final = """
import asyncio, ssl
import asyncpg

trust = ssl.create_default_context(cafile=<ca_file>)

async def main():
    connection = await asyncpg.connect(<dsn>, ssl=trust)
    print(await connection.fetchrow("SELECT 42 AS answer"))
    await connection.close()

asyncio.run(main())
"""

# It verifies the host that it connects to, and takes no other name beside it.
ASYNCPG_BY_ADDRESS: Final = """
import asyncio, ssl
import asyncpg

class Named(ssl.SSLContext):  # verifies this name, at whatever address
    def wrap_bio(self, *ends, server_hostname, **more):
        return super().wrap_bio(*ends, server_hostname=<host>, **more)

trust = Named(ssl.PROTOCOL_TLS_CLIENT)
trust.load_verify_locations(<ca_file>)

async def main():
    connection = await asyncpg.connect(<dsn>, ssl=trust)
    print(await connection.fetchrow("SELECT 42 AS answer"))
    await connection.close()

asyncio.run(main())
"""

SQLALCHEMY_POSTGRES: Final = """
from sqlalchemy import create_engine, text

engine = create_engine(<alchemy_postgres>)
with engine.connect() as connection:
    print(connection.execute(text("SELECT 42 AS answer")).one())
"""

NODE_POSTGRES: Final = """
const { Client } = require("pg");
const client = new Client({
  host: <address>, port: <port>, user: <user>, password: <password>, database: <database>,
  ssl: { ca: require("fs").readFileSync(<ca_file>), servername: <host> },
});
client.connect()
  .then(() => client.query("SELECT 42 AS answer"))
  .then((found) => console.log(found.rows))
  .finally(() => client.end());
"""

PYMYSQL: Final = """
import pymysql

connection = pymysql.connect(
    host=<host>, port=<port>, user=<user>, password=<password>, database=<database>,
    ssl_ca=<ca_file>, ssl_verify_cert=True, ssl_verify_identity=True,
)
with connection.cursor() as cursor:
    cursor.execute("SELECT 42 AS answer")
    print(cursor.fetchone())
"""

PYMYSQL_BY_ADDRESS: Final = """
import socket
import pymysql

connection = pymysql.connect(
    host=<host>, port=<port>, user=<user>, password=<password>, database=<database>,
    ssl_ca=<ca_file>, ssl_verify_cert=True, ssl_verify_identity=True, defer_connect=True,
)
connection.connect(socket.create_connection((<address>, <port>)))
with connection.cursor() as cursor:
    cursor.execute("SELECT 42 AS answer")
    print(cursor.fetchone())
"""

SQLALCHEMY_MYSQL: Final = """
from sqlalchemy import create_engine, text

verified = {"ssl_ca": <ca_file>, "ssl_verify_cert": True, "ssl_verify_identity": True}
engine = create_engine(<alchemy_mysql>, connect_args=verified)
with engine.connect() as connection:
    print(connection.execute(text("SELECT 42 AS answer")).one())
"""

SQLALCHEMY_MYSQL_BY_ADDRESS: Final = """
import socket
import pymysql
from sqlalchemy import create_engine, text

def connect():
    connection = pymysql.connect(
        host=<host>, port=<port>, user=<user>, password=<password>, database=<database>,
        ssl_ca=<ca_file>, ssl_verify_cert=True, ssl_verify_identity=True, defer_connect=True,
    )
    connection.connect(socket.create_connection((<address>, <port>)))
    return connection

engine = create_engine("mysql+pymysql://", creator=connect)
with engine.connect() as connection:
    print(connection.execute(text("SELECT 42 AS answer")).one())
"""

MYSQL2: Final = """
const mysql = require("mysql2/promise");
mysql.createConnection({
  host: <host>, port: <port>, user: <user>, password: <password>, database: <database>,
  ssl: { ca: require("fs").readFileSync(<ca_file>), verifyIdentity: true },
}).then(async (connection) => {
  console.log((await connection.query("SELECT 42 AS answer"))[0]);
  await connection.end();
});
"""

MYSQL2_BY_ADDRESS: Final = """
const mysql = require("mysql2/promise");
mysql.createConnection({
  host: <host>, port: <port>, user: <user>, password: <password>, database: <database>,
  ssl: { ca: require("fs").readFileSync(<ca_file>), verifyIdentity: true },
  stream: () => require("net").connect(<port>, <address>),
}).then(async (connection) => {
  console.log((await connection.query("SELECT 42 AS answer"))[0]);
  await connection.end();
});
"""

IOREDIS: Final = """
const Redis = require("ioredis");
const db = new Redis({
  host: <address>, port: <port>, username: <user>, password: <password>,
  tls: { ca: require("fs").readFileSync(<ca_file>), servername: <host> },
  maxRetriesPerRequest: 2,
});
db.set("answer", 42)
  .then(() => db.get("answer"))
  .then(console.log)
  .finally(() => db.quit());
"""

HTTPX: Final = """
import httpx, ssl

trust = ssl.create_default_context(cafile=<ca_file>)
answer = httpx.post(
    <url>, auth=(<user>, <password>), json={"sql": "SELECT 42 AS answer"}, verify=trust
)
print(answer.json())
"""

HTTPX_BY_ADDRESS: Final = """
import httpx, ssl

trust = ssl.create_default_context(cafile=<ca_file>)
answer = httpx.Client(verify=trust).post(
    <url>, auth=(<user>, <password>), json={"sql": "SELECT 42 AS answer"},
    headers={"Host": <host>}, extensions={"sni_hostname": <host>},
)
print(answer.json())
"""

_SEARCH: Final = """
client = meilisearch.Client(<base_url>, <password>)
books = client.index("books")
client.wait_for_task(books.add_documents([{"id": 42, "title": "Persuasion"}]).task_uid)
print(books.search("persuassion")["hits"])
"""

MEILISEARCH: Final = f"""
import os
import meilisearch

os.environ["REQUESTS_CA_BUNDLE"] = <ca_file>
{_SEARCH.strip()}
"""

MEILISEARCH_BY_ADDRESS: Final = f"""
import os, socket
import meilisearch

os.environ["REQUESTS_CA_BUNDLE"] = <ca_file>
resolve = socket.getaddrinfo
socket.getaddrinfo = lambda host, *more, **named: resolve(
    <address> if host == <host> else host, *more, **named
)
{_SEARCH.strip()}
"""
